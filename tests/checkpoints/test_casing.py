"""The casing of a checkpoint: from its files, its name, its vocabulary."""

import json
import shutil

import pytest

from bert_features.checkpoints.casing import casing_of, casing_of_vocabulary
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.sources.tf_hub import names_of
from bert_features.checkpoints.tokenizer import check_casing
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import read_vocab
from tests.toy import TOY_VOCAB


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("chinese_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("multi_cased_L-12_H-768_A-12", False),
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("tfhub.dev/google/bert_cased_L-12_H-768_A-12/1", False),
        ("tfhub.dev/google/bert_chinese_L-12_H-768_A-12/1", True),
        ("tfhub.dev/tensorflow/bert_zh_L-12_H-768_A-12/1", True),
        ("tfhub.dev/tensorflow/small_bert/bert_en_uncased_L-2_H-128_A-2/2", True),
        ("www.kaggle.com/models/tensorflow/bert/TensorFlow2/en-cased-l-12-h-768-a-12/4", False),
        ("www.kaggle.com/models/tensorflow/bert/TensorFlow2/zh-l-12-h-768-a-12/4", True),
        ("tfhub.dev/google/experts/bert/wiki_books/2", None),
        ("mine", None),
    ],
)
def test_the_name_shows_the_casing(tmp_path, name, lower):
    names = names_of(f"https://host/{name}")
    assert casing_of(WeightFiles(tmp_path / "m" / "model.ckpt", "tf1"), None, *names)[0] is lower


@pytest.mark.parametrize(("name", "lower"), [("bert-uncased", True), ("bert-cased", False)])
def test_a_casing_that_contradicts_the_folders_name(tf1, tmp_path, name, lower):
    found = find_checkpoint(shutil.copytree(tf1, tmp_path / name))
    assert found.do_lower_case is lower
    message = rf"cased \(its name is {name}\); pass do_lower_case={lower} or"
    with pytest.raises(CheckpointError, match=message):
        check_casing(found, not lower)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("lower", [True, False])
def test_tokenizer_json_tells_the_casing_after_the_tokenizer_config(tf1, tmp_path, lower, alone):
    name = "bert-base-cased" if lower else "bert-base-uncased"
    folder = shutil.copytree(tf1, tmp_path / name)
    normalizer = {"type": "BertNormalizer", "lowercase": lower}
    parts = {"type": "Sequence", "normalizers": [{"type": "Strip"}, normalizer]}
    values = {"normalizer": normalizer if alone else parts}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    found = find_checkpoint(folder)
    assert found.do_lower_case is lower
    stated = str(lower).lower()
    assert found.casing_evidence == f"normalizer.lowercase is {stated} in tokenizer.json"
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lower}))
    found = find_checkpoint(folder)
    stated = str(not lower).lower()
    assert found.do_lower_case is not lower
    assert found.casing_evidence == f"do_lower_case is {stated} in tokenizer_config.json"


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
