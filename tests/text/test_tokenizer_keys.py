"""Each key of a tokenizer's files, changed: as in transformers, or refused by its name."""

import json

import pytest

from bert_features.checkpoints.casing import casing_of
from bert_features.checkpoints.tokenizer import tokenizer_of
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.errors import CheckpointError
from bert_features.text.json_model import JsonModel
from bert_features.text.tokenizer_files import NAMES, read_tokenizer
from tests.tokenizer_keys import CHANGES, FOLDERS, LENGTH, OWN, REFERENCE, TEXTS
from tests.tokenizer_settings import write

_STORED = json.loads(REFERENCE.read_text())
# Keys that are refused although transformers, where they stand here, makes the same ids.
_STRICT = {
    *("cls_token", "sep_token", "bos_token", "eos_token", "mask_token", "tokenizer_class"),
    *("fast_tokenizer_files", "split_special_tokens", "word_tokenizer_type", "sp_model_kwargs"),
    *("subword_tokenizer_type", "vocab", "post_processor", "additional_special_tokens"),
    *("model.dropout", "model.continuing_subword_prefix"),
}
_tokenizers = {}


def _expected(name, folder):
    """The rows that transformers makes; those of the folder if a change is without effect."""
    numbers = _STORED["cases"].get(name, _STORED["cases"][folder])
    return [_STORED["rows"][number] for number in numbers]


def _rows(files, model_type, folder):
    """What transformers' rows are compared with, made by our reader."""
    path = write(files, folder, model_type)
    path = next(path / name for name in NAMES if (path / name).is_file())
    file = read_tokenizer(path, model_type)
    lower = casing_of(WeightFiles(folder / "model.safetensors", "safetensors"), path)[0]
    values = file.values if isinstance(file, JsonModel) else dict(file.rules)
    key = json.dumps([type(file).__name__, file.tokens, values, lower, model_type == "camembert"])
    if key not in _tokenizers:  # the frame is of the file
        _tokenizers[key] = tokenizer_of(file, lower).encode_ids(TEXTS)
    (a, b), frame = _tokenizers[key], file.frame
    cls, sep = [frame.cls_id], [frame.sep_id]
    pair = [*cls, *a, *sep * frame.separators, *b, *sep]
    types = [int(frame.has_types) * (n > len(a) + frame.separators) for n in range(len(pair))]
    return [[*cls, *a, *sep], pair, types, [*cls, *a[: LENGTH - 2], *sep]]


def _equal(found, expected):
    """Whether rows are equal; types are compared where transformers gives them."""
    return all(b is None or a == b for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_changed_keys_are_followed_have_no_effect_or_are_refused(name, tmp_path):
    (plain,) = _expected(name, name)
    assert _equal(_rows(*FOLDERS[name][:2], tmp_path), plain)
    problems = []
    for number, change in enumerate(c for c in CHANGES.values() if c.folder == name):
        folder = tmp_path / str(number)
        folder.mkdir()
        problems += _problems(change, plain, folder)
    assert not problems, "\n".join(problems)


def _problems(change, plain, folder):
    """What is wrong with a changed folder: nothing, or one line."""
    expected = _expected(change.name, change.folder)
    try:
        found = _rows(change.files(), FOLDERS[change.folder].model_type, folder)
    except CheckpointError as error:
        names = change.key.split(".")[-1], "[E1]", "<e1>"
        if expected and not any(name in str(error) for name in names):
            yield f"{change.name}: refused without its name: {error}"
        is_strict = change.key in _STRICT and change.value not in OWN
        if expected == [plain] and not is_strict:
            yield f"{change.name}: refused, but transformers reads it: {error}"
        return
    if not any(_equal(found, each) for each in expected or [plain]):
        yield f"{change.name}: {found}, and not {expected}"
