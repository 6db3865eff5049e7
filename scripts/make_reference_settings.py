"""What transformers computes of checkpoints whose config.json has settings that deviate.

    .venv-benchmark-references/bin/python scripts/make_reference_settings.py

scripts/make_reference_layers.sh makes that environment. `tests/data/settings.npz` has the last
layer and the logits of the masked-LM of each case of tests/reference/settings_cases.py, computed in
float64 and stored as float32. `tests/data/config_keys.json` has the keys that transformers writes
for each model type. Nothing of this package is used.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.reference.settings_cases import CASES, DATA, IDS, TYPES, UNSEEN, write

CLASSES = {
    **{"bert": "Bert", "albert": "Albert", "electra": "Electra", "distilbert": "DistilBert"},
    **{"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    **{"modernbert": "ModernBert", "mpnet": "MPNet", "ernie": "Ernie", "gte": "Gte"},
    "nomic_bert": "NomicBert",
}


def compute(name: str) -> dict[str, np.ndarray]:
    """The last layer [S, H] and the logits [S, V] of a case."""
    with tempfile.TemporaryDirectory() as folder:
        write(name, Path(folder))
        cls = getattr(transformers, f"{CLASSES[CASES[name][0]]}ForMaskedLM")
        # The default for tokens that attend to nothing, which the other makes NaN.
        form = "sdpa" if name in UNSEEN else "eager"
        model = cls.from_pretrained(folder, attn_implementation=form).double().eval()
    mask = np.arange(len(IDS)) < len(IDS) - UNSEEN.get(name, 0)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([IDS])}
    inputs["attention_mask"] = torch.tensor(mask[None].astype(int))
    if CASES[name][0] in ("bert", "albert"):
        types = [min(each, model.config.type_vocab_size - 1) for each in TYPES]
        inputs["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        got = model(**inputs, output_hidden_states=True)
    arrays = {"states": got.hidden_states[-1][0], "logits": got.logits[0]}
    return {f"{name}.{key}": np.asarray(array, np.float32) for key, array in arrays.items()}


def main() -> None:
    """Writes both files."""
    np.savez_compressed(
        DATA / "settings.npz", **{k: v for name in CASES for k, v in compute(name).items()}
    )
    keys = {
        model_type: sorted(getattr(transformers, f"{name}Config")().to_dict())
        for model_type, name in CLASSES.items()
    }
    text = json.dumps(keys, indent=1)
    (DATA / "config_keys.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
