"""The casing of a checkpoint: from its files, its name, its vocabulary."""

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


def test_vocabularies_tell_their_casing(vocabularies, minilm_dir):
    assert casing_of_vocabulary(read_vocab(minilm_dir / "vocab.txt")) is True
    assert casing_of_vocabulary(read_vocab(vocabularies / "cased_28996.txt")) is False
    assert casing_of_vocabulary(read_vocab(vocabularies / "chinese_21128.txt")) is True
    assert casing_of_vocabulary(TOY_VOCAB) is None
