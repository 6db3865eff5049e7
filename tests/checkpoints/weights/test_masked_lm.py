"""The masked-LM head: its names in each kind of checkpoint, and what is refused."""

import logging
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.weights.masked_lm import head_shapes, stored_head
from bert_features.errors import CheckpointError
from tests.families import DATA
from tests.weights import assert_same

SCOPE = "cls/predictions"


@pytest.fixture
def changed(tmp_path):
    """A function: the small BERT with its tensors changed by a function of them."""

    def make(change):
        folder = shutil.copytree(DATA / "bert", tmp_path / "bert")
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
        return find_checkpoint(folder)

    return make


def test_the_head_is_read_with_the_encoder(caplog):
    checkpoint = find_checkpoint(DATA / "bert")
    with caplog.at_level(logging.INFO, "bert_features"):
        weights = read_weights(checkpoint, head=True)
    assert "cls.seq_relationship" in caplog.text
    assert "cls.predictions" not in caplog.text
    shapes = head_shapes(checkpoint.config)
    assert {name: weights[name].shape for name in shapes} == shapes
    stored = load_file(DATA / "bert" / "model.safetensors")
    dense = "cls.predictions.transform.dense.weight"
    np.testing.assert_array_equal(weights[f"{SCOPE}/transform/dense/kernel"], stored[dense].T)
    assert_same(
        {name: value for name, value in weights.items() if name not in shapes},
        read_weights(checkpoint),
    )


def test_a_checkpoint_without_a_head(changed):
    def remove(tensors):
        for name in [name for name in tensors if name.startswith("cls.predictions")]:
            del tensors[name]

    checkpoint = changed(remove)
    read_weights(checkpoint)
    message = "has no masked-LM head.*fine-tuned models.*such as bert-base-uncased"
    with pytest.raises(CheckpointError, match=message):
        read_weights(checkpoint, head=True)


def test_the_bias_may_have_the_name_of_the_decoder(changed):
    def rename(tensors):
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
        scope = "cls.predictions.transform.LayerNorm"  # as early conversions to PyTorch
        tensors[f"{scope}.gamma"] = tensors.pop(f"{scope}.weight")
        words = tensors["bert.embeddings.word_embeddings.weight"]
        tensors["cls.predictions.decoder.weight"] = words.copy()

    weights = read_weights(changed(rename), head=True)
    assert_same(weights, read_weights(find_checkpoint(DATA / "bert"), head=True))


@pytest.mark.parametrize("prefix", ["module.", "a.b.", "bert."])
def test_a_head_beside_an_encoder_with_a_longer_prefix(changed, prefix):
    """`module.bert.` and `module.cls.`; or all in one scope, where an encoder alone is no error."""

    def wrap(tensors):
        stored = dict(tensors)
        tensors.clear()
        tensors.update({f"{prefix}{name}": value for name, value in stored.items()})
        tensors["cls.predictions.bias"] = np.zeros(30, np.float32)  # of something else

    weights = read_weights(changed(wrap), head=True)
    assert_same(weights, read_weights(find_checkpoint(DATA / "bert"), head=True))


def test_a_head_of_integers_is_refused(changed):
    def quantise(tensors):
        tensors["cls.predictions.bias"] = np.zeros(30, np.int8)

    checkpoint = changed(quantise)
    read_weights(checkpoint)
    with pytest.raises(CheckpointError, match=r"cls\.predictions\.bias is int8, expected floats"):
        read_weights(checkpoint, head=True)


def test_a_matrix_that_is_not_the_word_embeddings_is_refused(changed):
    def untie(tensors):
        words = tensors["bert.embeddings.word_embeddings.weight"]
        tensors["cls.predictions.decoder.weight"] = words + 1

    with pytest.raises(CheckpointError, match=r"decoder\.weight differs from the word embeddings"):
        read_weights(changed(untie), head=True)


def test_a_wrong_shape_matters_only_if_the_head_is_wanted(changed):
    def cut(tensors):
        tensors["cls.predictions.bias"] = tensors["cls.predictions.bias"][:-1].copy()

    checkpoint = changed(cut)
    read_weights(checkpoint)
    message = r"cls\.predictions\.bias is \(29,\), expected \(30,\)"
    with pytest.raises(CheckpointError, match=message):
        read_weights(checkpoint, head=True)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "tf1",  # google-research/bert, run_pretraining.py; ALBERT has the same
            ["transform/dense/kernel", "transform/dense/bias", "transform/LayerNorm/gamma",
             "transform/LayerNorm/beta", "output_bias"],
        ),
        (
            "tf2",  # the Model Garden's variables, official/nlp/modeling/layers/masked_lm.py
            ["transform/dense/kernel", "transform/dense/bias", "transform/LayerNorm/gamma",
             "transform/LayerNorm/beta", "output_bias/bias"],
        ),
    ],
)  # fmt: skip
def test_names_of_tensorflow(kind, names):
    scopes = [""] if kind == "tf1" else ["", "bert_pretrainer/"]
    config = find_checkpoint(DATA / "bert").config
    canonical = head_shapes(config)
    for scope in scopes:
        stored = {f"{scope}{SCOPE}/{name}": () for name in names}
        others = {f"{scope}cls/seq_relationship/output_bias": (), "global_step": ()}
        assert stored_head(stored | others, kind, config) == dict(
            zip(canonical, stored, strict=True)
        )
        del stored[next(iter(stored))]
        assert stored_head(stored, kind, config) == {}


def test_paths_of_the_model_garden():
    parts = ("dense/kernel", "dense/bias", "layer_norm/gamma", "layer_norm/beta", "bias")
    stored = {f"model/masked_lm/{part}": () for part in parts}
    config = find_checkpoint(DATA / "bert").config
    assert list(stored_head(stored, "tf2", config).values()) == list(stored)
