"""Reading weights: bit-identical, whole or refused."""

import dataclasses
import hashlib
import logging

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights, weights_sha256
from bert_features.encoder.parts import load_weights
from bert_features.errors import CheckpointError
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)


def rewrite(folder, change):
    """Changes the tensors of a safetensors file."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)
    return folder


# What training leaves in a TF1 checkpoint; and heads of classification, SQuAD and NER with a CRF.
SLOTS = {
    "global_step": (),
    "bert/pooler/dense/kernel/adam_m": (8, 8),
    "bert/encoder/layer_0/output/dense/bias/adam_v": (8,),
    "bert/embeddings/LayerNorm/beta/Adam": (8,),
    "bert/embeddings/LayerNorm/beta/Adam_1": (8,),
    "output_weights/adam_m": (3, 8),
    "beta1_power": (),
}
HEADS = {
    "cls/predictions/output_bias": (30,),
    "cls/seq_relationship/output_weights": (2, 8),
    "cls/squad/output_weights": (2, 8),
    "crf/transitions": (5, 5),
    "crf_loss/transitions": (5, 5),
    "loss/output_bias": (5,),
    "output_bias": (3,),
    "output_weights": (3, 8),
    "project/hidden/W": (8, 8),
}


# Heads that users name as they like.
OWN = {"my_scope/dense/kernel": (8, 3), "student/project/W": (8, 8), "student/bias/Adam": (8,)}


@pytest.mark.parametrize(
    ("scope", "others"),
    [("", HEADS), ("bert/", SLOTS | HEADS), ("student/bert/", HEADS | OWN), ("module/", {})],
)
def test_tf1_is_read_bit_for_bit(tmp_path, scope, others, caplog):
    extra = {name: np.ones(shape, np.float32) for name, shape in others.items()}
    folder = write_directory(
        tmp_path, TOY, TOY_VOCAB, WEIGHTS, kind="tf1", scope=scope, extra=extra
    )
    checkpoint = find_checkpoint(folder)
    assert (checkpoint.kind, checkpoint.family) == ("tf1", "google")
    assert checkpoint.config.hidden_act == "gelu_tanh"
    caplog.set_level(logging.INFO, "bert_features")
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)
    more = 5 + 2 * (OWN.keys() <= others.keys())  # an optimizer's slot is no head
    heads = f"ignoring the heads {', '.join([*HEADS][:4])} and {more} more"
    assert [heads in message for message in caplog.messages] == [True] * bool(others)


@pytest.mark.parametrize(("prefix", "old_norms"), [("", False), ("bert.", True)])
def test_safetensors_are_read_bit_for_bit(copy, prefix, old_norms):
    def change(tensors):
        renamed = {f"{prefix}{name}": value for name, value in tensors.items()}
        if old_norms:
            renamed = {
                n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v
                for n, v in renamed.items()
            }
        positions = {f"{prefix}embeddings.position_ids": np.arange(24)[None]}
        return renamed | positions | {"cls.predictions.bias": np.zeros(30, np.float32)}

    checkpoint = find_checkpoint(rewrite(copy, change))
    assert (checkpoint.kind, checkpoint.family) == ("safetensors", "huggingface")
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


def test_weights_do_not_change_with_their_file(copy):
    """A user changes them, and writes them to the file that they came from."""
    path = rewrite(copy, dict)
    weights = read_weights(find_checkpoint(path), pooler=True)
    for file in [path] if path.is_file() else path.glob("*.safetensors"):
        with file.open("r+b") as data:
            data.truncate(9)
    assert_same(weights, WEIGHTS)
    for value in weights.values():
        value += 1


def test_an_encoder_has_its_own_copy():
    """JAX would take the memory of the array, which may be that of a file."""

    class Variable:
        shape, dtype = (2,), "float32"

        def assign(self, value):
            self.value = value

    variable, weight = Variable(), np.ones(2, np.float32)
    load_weights([(variable, ["w"])], {"w": weight})
    assert not np.shares_memory(variable.value, weight)


@pytest.mark.parametrize(
    ("prefix", "heads"),
    [
        ("bert.", ["linear.weight"]),  # ColBERT
        ("bert.", ["fit_denses.0.bias", "fit_denses.0.weight", "fit_denses.1.weight"]),  # TinyBERT
        ("bert.", ["bilstm.weight_ih_l0", "crf.transitions", "encoder.dense.bias"]),
        ("", ["classifier.bias", "linear.weight", "lm.embeddings.bias"]),
        ("0.auto_model.", ["2.linear.weight"]),
        ("_orig_mod.module.bert.", ["_orig_mod.module.classifier.weight", "bert.extra.weight"]),
        ("model.", []),
        ("transformer.layer.0.", ["transformer.layer.1.pooler.dense.bias"]),
    ],
)
def test_names_outside_the_encoder_are_heads(copy, caplog, prefix, heads):
    buffers = ["embeddings.position_ids", "embeddings.token_type_ids", "x.rotary_emb.inv_freq"]

    def change(tensors):
        renamed = {f"{prefix}{name}": value for name, value in tensors.items()}
        others = [*heads, *(f"{prefix}{name}" for name in buffers)]
        return renamed | {name: np.ones(3, np.int64) for name in others}

    checkpoint = find_checkpoint(rewrite(copy, change))
    caplog.set_level(logging.INFO, "bert_features")
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)
    assert [line.partition("the heads ")[2] for line in caplog.messages] == [", ".join(heads)] * (
        len(heads) > 0
    )


def test_two_encoders_in_a_file(copy, caplog):
    """One of them alone is whole, or there is no telling which is wanted."""

    def change(tensors):
        both = {f"question_model.bert_model.{name}": value for name, value in tensors.items()}
        return both | {f"ctx_encoder.{name}": value + 1 for name, value in tensors.items()}

    message = r"2 encoders, .* begin with 'ctx_encoder\.', 'question_model\.bert_model\.'; save"
    with pytest.raises(CheckpointError, match=message):
        read_weights(find_checkpoint(rewrite(copy, change)))

    def cut(tensors):  # as a student of fewer layers
        return {n: v for n, v in tensors.items() if not n.startswith("ctx_encoder.encoder.layer.2")}

    caplog.set_level(logging.INFO, "bert_features")
    assert_same(read_weights(find_checkpoint(rewrite(copy, cut)), pooler=True), WEIGHTS)
    assert "ignoring the heads ctx_encoder.embeddings.LayerNorm.bias" in caplog.text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights_become_float32(copy, dtype):
    import ml_dtypes

    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    rewrite(copy, lambda tensors: {n: v.astype(kind) for n, v in tensors.items()})
    expected = {n: v.astype(kind).astype(np.float32) for n, v in WEIGHTS.items()}
    assert_same(read_weights(find_checkpoint(copy), pooler=True), expected)


def test_weights_that_are_not_finite_are_read_with_a_warning(copy, caplog):
    rewrite(copy, lambda t: t | {"pooler.dense.bias": np.full(8, np.nan, np.float32)})
    checkpoint = find_checkpoint(copy)
    read_weights(checkpoint)  # the pooler is not among them
    assert not caplog.text
    assert np.isnan(read_weights(checkpoint, pooler=True)["pooler/dense/bias"]).all()
    assert "some weights are not finite" in caplog.text


def test_weights_that_went_away(copy):
    checkpoint = find_checkpoint(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory"):
        read_weights(checkpoint)
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory"):
        weights_sha256(checkpoint)


def test_a_published_tf1_checkpoint_with_adam_slots(data):
    checkpoint = find_checkpoint(data / "keras_bert_tf1")
    weights = read_weights(checkpoint, pooler=True)
    stored = tf.train.load_checkpoint(str(checkpoint.weights_path))
    for name, value in weights.items():
        np.testing.assert_array_equal(value, stored.get_tensor(f"bert/{name}"))


@pytest.mark.parametrize("damage", [False, True])
def test_a_wrong_sha_256_is_the_error_whatever_the_reader_finds(copy, damage):
    checkpoint = find_checkpoint(copy)
    expected = hashlib.sha256(checkpoint.weights_path.read_bytes()).hexdigest()
    assert_same(
        read_weights(dataclasses.replace(checkpoint, expected_sha256=expected)),
        read_weights(checkpoint),
    )
    if damage:
        checkpoint.weights_path.write_bytes(checkpoint.weights_path.read_bytes()[:-100])
    wrong = dataclasses.replace(checkpoint, expected_sha256="0" * 64)
    with pytest.raises(CheckpointError, match=r"has SHA-256 .*, expected 0000"):
        read_weights(wrong)
