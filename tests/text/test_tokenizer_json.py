"""A vocabulary from tokenizer.json: the pieces of the same tokenizer's vocab.txt."""

import json

import pytest
from tokenizers import BertWordPieceTokenizer

from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import read_vocab
from tests.toy import TOY_VOCAB


@pytest.fixture
def written(tmp_path):
    """What the `tokenizers` library writes for a vocab.txt."""
    (tmp_path / "vocab.txt").write_text("\n".join(TOY_VOCAB), encoding="utf-8")
    path = tmp_path / "tokenizer.json"
    BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=True).save(str(path))
    return path


def test_the_pieces_come_in_the_order_of_their_ids(written):
    values = json.loads(written.read_text())
    vocab = values["model"]["vocab"]
    values["model"]["vocab"] = dict(reversed(vocab.items()))  # the order in the file says nothing
    written.write_text(json.dumps(values))
    assert read_vocab(written) == TOY_VOCAB


def test_added_pieces_have_their_place(written):
    values = json.loads(written.read_text())
    values["added_tokens"].append({"id": len(TOY_VOCAB), "content": "[NEW]"})
    written.write_text(json.dumps(values))
    assert read_vocab(written) == [*TOY_VOCAB, "[NEW]"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["model"].update(type="BPE"), "model.type is 'BPE'"),
        (lambda v: v.update(normalizer=None), "normalizer.type is 'None'"),
        (lambda v: v["normalizer"].update(handle_chinese_chars=False), "handle_chinese_chars is"),
        (lambda v: v["normalizer"].update(lowercase=False, strip_accents=True), "strip_accents is"),
        (lambda v: v["model"]["vocab"].update(this=99), "ids are not 0 to 29"),
        (lambda v: v["model"].update(vocab=[]) or v.update(added_tokens=[]), "has no vocabulary"),
        (lambda v: v["model"]["vocab"].update(a="1"), "has no vocabulary of pieces with an id"),
    ],
)
def test_other_tokenizers_are_refused(written, change, message):
    values = json.loads(written.read_text())
    change(values)
    written.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=message) as caught:
        read_vocab(written)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]"])
def test_damaged_files_are_refused(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer.json is no"):
        read_vocab(tmp_path / "tokenizer.json")
