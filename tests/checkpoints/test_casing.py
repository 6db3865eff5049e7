"""The casing of a checkpoint: from its files, its name, its vocabulary."""

import json
import shutil

import pytest

from bert_features.checkpoints.casing import casing_of_vocabulary
from bert_features.checkpoints.find import check_casing, find_checkpoint
from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import read_vocab
from tests.toy import TOY_VOCAB


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("chinese_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("mine", None),
    ],
)
def test_the_name_tells_the_casing(tf1, tmp_path, name, lower):
    found = find_checkpoint(shutil.copytree(tf1, tmp_path / name))
    assert found.do_lower_case is lower


def test_the_tokenizer_config_tells_the_casing_first(tf1, tmp_path):
    folder = shutil.copytree(tf1, tmp_path / "uncased_L-3")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    checkpoint = find_checkpoint(folder)
    assert checkpoint.do_lower_case is False
    check_casing(checkpoint, False)
    with pytest.raises(
        CheckpointError, match=r"is cased \(do_lower_case is false.*pass do_lower_case=False"
    ):
        check_casing(checkpoint, True)


def write_tokenizer(folder, **normalizer):
    values = {"normalizer": {"type": "BertNormalizer", **normalizer}}
    (folder / "tokenizer.json").write_text(json.dumps(values))


@pytest.mark.parametrize("lower", [True, False])
def test_tokenizer_json_tells_the_casing_after_the_tokenizer_config(tf1, tmp_path, lower):
    name = "bert-base-cased" if lower else "bert-base-uncased"
    folder = shutil.copytree(tf1, tmp_path / name)
    write_tokenizer(folder, lowercase=lower)
    found = find_checkpoint(folder)
    assert found.do_lower_case is lower
    stated = str(lower).lower()
    assert found.casing_evidence == f"normalizer.lowercase is {stated} in tokenizer.json"
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lower}))
    assert find_checkpoint(folder).do_lower_case is not lower


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"normalizer": null}', '{"normalizer": {"type": "Lowercase"}}']
)
def test_another_tokenizer_json_beside_a_vocabulary_shows_nothing(tf1, tmp_path, text):
    folder = shutil.copytree(tf1, tmp_path / "bert-base-cased")
    (folder / "tokenizer.json").write_text(text)
    assert find_checkpoint(folder).do_lower_case is False


def test_vocabularies_tell_their_casing(vocabularies, minilm_dir):
    assert casing_of_vocabulary(read_vocab(minilm_dir / "vocab.txt")) is True
    assert casing_of_vocabulary(read_vocab(vocabularies / "cased_28996.txt")) is False
    assert casing_of_vocabulary(read_vocab(vocabularies / "chinese_21128.txt")) is True
    assert casing_of_vocabulary(TOY_VOCAB) is None
