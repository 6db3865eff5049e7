"""The functions of an export of ids: numbers, training, TF-Hub's interface."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features.checkpoints.sources import tf_hub
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB

IDS = ("input_word_ids", "input_mask", "input_type_ids")


@pytest.fixture(scope="module")
def hub():
    return tf_hub._import_tensorflow_hub()  # setuptools may be too new for an import by name


@pytest.fixture(scope="module")
def encoder(hub, toy_ids):
    return hub.load(str(toy_ids))


def constants(batch):
    return {name: tf.constant(batch[name]) for name in IDS}


def test_ids_equal_the_numpy_reference(encoder, weights, batch):
    result = encoder(constants(batch))
    states = NumpyEncoder(TOY, weights)(*(batch[name] for name in IDS))
    real = batch["input_mask"][:, :, None]
    assert len(result["encoder_outputs"]) == TOY.num_hidden_layers
    for got, wanted in zip(result["encoder_outputs"], states[1:], strict=True):
        np.testing.assert_allclose(got * real, wanted * real, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result["sequence_output"], result["encoder_outputs"][-1])
    pooled = NumpyEncoder(TOY, weights).pooled(states[-1])
    np.testing.assert_allclose(result["pooled_output"], pooled, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result["default"], result["pooled_output"])
    np.testing.assert_array_equal(
        encoder(constants(batch), training=False, mask=None)["default"], result["default"]
    )


def test_hub_interface(encoder, weights):
    names = {v.name: tuple(v.shape) for v in encoder.variables}
    assert names["word_embeddings/embeddings:0"] == (30, 8)
    assert names["transformer/layer_2/self_attention/query/kernel:0"] == (8, 2, 4)
    assert names["transformer/layer_2/self_attention/attention_output/kernel:0"] == (2, 4, 8)
    assert names["transformer/layer_0/self_attention_layer_norm/gamma:0"] == (8,)
    assert names["transformer/layer_0/intermediate/kernel:0"] == (8, 16)
    assert names["pooler_transform/kernel:0"] == (8, 8)
    assert len(names) == len(weights)
    assert {v.name for v in encoder.trainable_variables} == names.keys()
    assert list(encoder.regularization_losses) == []
    assert bool(encoder.do_lower_case) is True
    vocab = tf.io.read_file(encoder.vocab_file.asset_path).numpy().decode()
    assert vocab.split() == TOY_VOCAB


@pytest.mark.slow
def test_training_drops_out_and_gradients_reach_every_variable(encoder, batch):
    inputs = constants(batch)
    plain = encoder(inputs)["sequence_output"]
    first, second = (encoder(inputs, training=True)["sequence_output"] for _ in range(2))
    assert np.abs(first - plain).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(inputs, training=True)["default"] ** 2)
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert all(g is not None and np.any(tf.convert_to_tensor(g)) for g in gradients)


def test_rows_that_are_too_long_are_refused(encoder):
    inputs = {name: tf.ones([1, 25], tf.int32) for name in IDS}
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the 24 tokens"):
        encoder.signatures["serving_default"](**inputs)


@pytest.mark.slow
def test_hub_keras_layer_takes_texts(hub, toy_text):
    layer = hub.KerasLayer(str(toy_text))
    assert layer(tf.constant(["the a b", "no"]))["mean"].shape == (2, 8)
