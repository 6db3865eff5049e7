"""Makes settings.json and keys.json of tests/data/tokenizers.

Their cases are in tests/tokenizer_settings.py and tests/tokenizer_keys.py.

    PYTHONPATH=. PYTHON scripts/make_reference_tokenizer_settings.py

PYTHON is one with transformers 5.24 and sentencepiece; it runs without the network. For each case
there are the ids of its texts without special tokens, their offsets, and the row and the types of
the pair of its first two texts.
For each folder there are the rows of transformers, and for each changed key that changes them the
others: none if it fails, and two if its class ignores the key and another follows it.
"""

import inspect
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from tests import tokenizer_keys
from tests.tokenizer_keys import CHANGES, CONFIG, FOLDERS, JSON, LENGTH, TEXTS, Change
from tests.tokenizer_settings import CASES, REFERENCE, Case, write

# Arguments of from_pretrained and of the classes that no file has.
_NOT_IN_FILES = {
    *("gguf_file", "is_local", "tokenizer_object", "added_tokens_file", "trust_remote_code"),
    *("post_processor", "tokenizer_padding", "tokenizer_truncation", "files_loaded", "vocab_size"),
    *("name_or_path", "auto_map", "local_files_only", "tokenizer"),
}


def main() -> None:
    """Writes the files."""
    found = {name: _reference(case) for name, case in CASES.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(v)}" for name, v in found.items())
    REFERENCE.write_text(f"{{\n{lines}\n}}\n")
    _check_keys()
    rows: list[Any] = []

    def number(found: Any) -> int:
        if found not in rows:
            rows.append(found)
        return rows.index(found)

    cases = {name: [number(_rows(*folder[:2]))] for name, folder in FOLDERS.items()}
    for name, change in CHANGES.items():
        found = list(dict.fromkeys(map(number, _all_rows(change))))
        cases |= {name: found} if found != cases[change.folder] else {}
    lines = ",\n".join(map(json.dumps, rows))
    numbers = ",\n".join(f"{json.dumps(name)}: {json.dumps(v)}" for name, v in cases.items())
    tokenizer_keys.REFERENCE.write_text(f'{{"rows": [\n{lines}\n],\n"cases": {{\n{numbers}\n}}}}\n')


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


def _all_rows(change: Change) -> list[Any]:
    """What transformers makes of a changed folder; of a changed tokenizer.json also as it is."""
    model_type = FOLDERS[change.folder].model_type
    made = [lambda: _rows(change.files(), model_type)]
    if change.file == JSON:
        made.append(lambda: _rows(change.files("PreTrainedTokenizerFast"), model_type))
    if change.key == "do_basic_tokenize" and "vocab.txt" in change.files():
        old = transformers.models.bert.tokenization_bert_legacy.BertTokenizerLegacy
        made.append(lambda: _rows(change.files(), model_type, old))
    found = []
    for make in made:
        try:
            found.append(make())
        except BaseException as error:  # a panic of its library is no Exception
            print(f"{change.name}: {type(error).__name__} {str(error)[:80]}")
    return found


def _rows(
    files: Mapping[str, Any], model_type: str, tokenizer_class: Any = transformers.AutoTokenizer
) -> list[Any]:
    """The row of a text, that of a pair with its types, if it has, and a row that is cut."""
    with tempfile.TemporaryDirectory() as folder:
        write(dict(files), Path(folder), model_type)
        tokenizer = tokenizer_class.from_pretrained(folder)
    pair = tokenizer(*TEXTS)
    cut = tokenizer(TEXTS[0], truncation=True, max_length=LENGTH)
    row = tokenizer(TEXTS[0])["input_ids"]
    return [row, pair["input_ids"], pair.get("token_type_ids"), cut["input_ids"]]


def _check_keys() -> None:
    """Fails if a class of transformers takes a key that no folder changes."""
    names = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Albert", "MPNet")
    classes = [getattr(transformers, f"{name}Tokenizer") for name in names]
    known = {key for each in classes for key in inspect.signature(each.__init__).parameters}
    base, backend = transformers.PreTrainedTokenizerBase, transformers.TokenizersBackend
    for method in (
        *(base.__init__, base._from_pretrained),
        *(backend.__init__, backend.convert_to_native_format),
    ):
        known |= set(
            re.findall(
                r'kwargs\.(?:pop|get|setdefault)\(\s*"([a-z]\w+)"', inspect.getsource(method)
            )
        )
    changed = {change.key for change in CHANGES.values() if change.file == CONFIG}
    missing = known - changed - _NOT_IN_FILES - {"self", "kwargs"}
    missing = {key for key in missing if not key.startswith("_")}
    assert not missing, f"tests/tokenizer_keys.py lacks {sorted(missing)}"


if __name__ == "__main__":
    main()
