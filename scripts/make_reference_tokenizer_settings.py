"""Makes tests/data/tokenizers/settings.json, of the cases in tests/tokenizer_settings.py.

    PYTHONPATH=. PYTHON scripts/make_reference_tokenizer_settings.py

PYTHON is one with transformers 5.24 and sentencepiece; it runs without the network. For each case
there are the ids of its texts without special tokens, their offsets, and the row and the types of
the pair of its first two texts.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from tests.tokenizer_settings import CASES, REFERENCE, Case, write


def main() -> None:
    """Writes the file."""
    found = {name: _reference(case) for name, case in CASES.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(v)}" for name, v in found.items())
    REFERENCE.write_text(f"{{\n{lines}\n}}\n")


def _reference(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write(case.files, Path(folder), case.model_type)
        if case.tokenizer_class is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        else:
            made = getattr(transformers.models.bert.tokenization_bert_legacy, case.tokenizer_class)
            tokenizer = made.from_pretrained(folder)
    pair = tokenizer(*case.texts[:2], return_token_type_ids=True)
    found: dict[str, Any] = {
        "ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in case.texts],
        "pair": pair["input_ids"],
        "types": pair["token_type_ids"],
    }
    if case.tokenizer_class is None:
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        found["offsets"] = [tokenizer(text, **options)["offset_mapping"] for text in case.texts]
    return found


if __name__ == "__main__":
    main()
