"""What transformers computes of checkpoints whose config.json has settings that deviate.

    .venv-benchmark-references/bin/python scripts/make_reference_settings.py

scripts/make_reference_layers.sh makes that environment. `tests/data/settings.npz` has the last
layer and the logits of the masked-LM of each case of tests/reference/settings_cases.py, computed in
float64 and stored as float32. `tests/data/config_keys.json` has the keys that transformers writes
for each model type, `tests/data/config_changes.npz` the last layer of two tokens for each change of
tests/reference/config_changes.py that changes it. Nothing of this package is used.
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
from tests.reference.config_changes import FAMILIES, base, changes, keys
from tests.reference.settings_cases import CASES, DATA, IDS, TYPES, UNSEEN, write


def compute(name: str) -> dict[str, np.ndarray]:
    """The last layer [S, H] and the logits [S, V] of a case."""
    with tempfile.TemporaryDirectory() as folder:
        write(name, Path(folder))
        cls = getattr(transformers, f"{FAMILIES[CASES[name][0]][1]}ForMaskedLM")
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


def keys_of(model_type: str) -> list[str]:
    """The keys that a config class writes; what else it takes must be among the changed keys."""
    cls = getattr(transformers, f"{FAMILIES[model_type][1]}Config")
    properties = {n for n in dir(cls) if getattr(getattr(cls, n), "fset", None) and n[0] != "_"}
    if missing := {*cls.attribute_map, *properties} - {*keys()}:
        raise SystemExit(f"tests/reference/config_changes.py lacks {missing}")
    return sorted(cls().to_dict())


def changed(model_type: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Two tokens' last layer [2, H] by change, where it is another; and changes that fail."""
    cls = getattr(transformers, f"{FAMILIES[model_type][1]}Model")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "model.safetensors")
        weights.symlink_to(DATA / "families" / FAMILIES[model_type][0] / weights.name)

        def states(values: dict[str, Any]) -> np.ndarray:
            Path(folder, "config.json").write_text(json.dumps(values))
            model = cls.from_pretrained(folder, attn_implementation="eager").double().eval()
            with torch.no_grad():
                got: np.ndarray = model(torch.tensor([IDS])).last_hidden_state[0].numpy()
            return got

        arrays, failed, usual = {}, [], states(base(model_type))
        arrays[model_type] = usual[[0, -1]].astype(np.float32)
        for _, name, values in changes(model_type):
            try:
                found = states(values)
            except Exception:  # of many types
                failed.append(name)
                continue
            if np.abs(found - usual).max() > 1e-6:
                arrays[name] = found[[0, -1]].astype(np.float32)
    return arrays, failed


def main() -> None:
    """Writes the files."""
    np.savez_compressed(
        DATA / "settings.npz", **{k: v for name in CASES for k, v in compute(name).items()}
    )
    written = {model_type: keys_of(model_type) for model_type in FAMILIES}
    (DATA / "config_keys.json").write_text(json.dumps(written, indent=1) + "\n")
    arrays, failed = {}, []
    for model_type in FAMILIES:
        found, errors = changed(model_type)
        arrays |= found
        failed += errors
    np.savez_compressed(DATA / "config_changes.npz", failed=failed, **arrays)


if __name__ == "__main__":
    main()
