"""Dense layers in int8: against integers in NumPy, and against the same encoders in float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features.encoder.forms import traced_for
from bert_features.encoder.int8 import (
    INT8_DENSE,
    Int8Dense,
    Int8DenseByToken,
    exact_products,
    find_range,
    quantize,
)
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.machine import onednn
from tests import families
from tests.reference.numpy_encoder import gelu_erf

needs_vnni = pytest.mark.skipif(
    not onednn.fixes_weights("int8"), reason="oneDNN has no VNNI on this CPU"
)
GENERATOR = np.random.default_rng(0)
ACTIVATIONS = {
    "linear": lambda x: x,
    "gelu_erf": gelu_erf,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
}


def made(kind, weight, bias, inputs, activation="linear"):
    layer = kind(*weight.shape, activation, initializer=keras.initializers.Zeros())
    layer.take(weight, inputs)
    layer.bias.assign(bias)
    return layer


def computed(layer, *inputs, **choices):
    """What the layer gives in a graph, of any number of tokens."""

    @tf.function(autograph=False)
    def run(*inputs):
        with traced_for("cpu", **choices):
            return layer(*inputs)

    return run(*map(tf.constant, inputs)).numpy()


def arrays(tokens=40, inputs=24, outputs=16):
    """Inputs of which some channels are large, a weight and a bias."""
    sizes = np.exp(GENERATOR.normal(0, 1.5, inputs))
    x = GENERATOR.normal(0.3, 1, (tokens, inputs)) * sizes
    weight = GENERATOR.normal(0, 0.3, (inputs, outputs))
    bias = GENERATOR.normal(0, 1, outputs)
    return (each.astype(np.float32) for each in (x, weight, bias))


@needs_vnni
@pytest.mark.parametrize("fixed_weights", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_product_is_that_of_the_integers(activation, fixed_weights):
    """The inputs and weights as the layer rounds them, multiplied in float64."""
    x, weight, bias = arrays()
    layer = made(Int8Dense, weight, bias, x, activation)
    residual = GENERATOR.normal(0, 1, (40, 16)).astype(np.float32)
    (low, high), factors = layer.range.numpy().astype(float), layer.factors.numpy().astype(float)
    step = (high - low) / 255
    steps = np.clip(np.floor(x * factors - low / step + 0.5), 0, 255)
    integers = layer.weight.numpy().astype(float) * layer.largest.numpy() / 127
    want = ACTIVATIONS[activation]((low + steps * step) @ integers + bias) + residual
    got = computed(layer, x, residual, fixed_weights=fixed_weights)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())
    exact = ACTIVATIONS[activation](x.astype(float) @ weight + bias) + residual
    assert np.abs(got - exact).mean() < 0.03 * np.abs(exact - residual).mean()
    assert np.abs(layer.weight.numpy()).max() == 127


@needs_vnni
def test_each_token_has_its_own_range():
    """Tokens a thousand times as large are as exact as others, and change no other."""
    x, weight, bias = arrays()
    x[::2] *= 1000
    layer = made(Int8DenseByToken, weight, bias, x)
    got, exact = computed(layer, x), x.astype(float) @ weight
    errors = np.abs(got - bias - exact).mean(axis=1) / np.abs(exact).mean(axis=1)
    assert errors.max() < 0.05
    np.testing.assert_array_equal(computed(layer, x[1::2]), got[1::2])


@needs_vnni
@pytest.mark.parametrize("kind", INT8_DENSE)
def test_values_that_no_range_foresees(kind):
    """Larger inputs than those of the calibration are cut, and never too large for a byte."""
    x, weight, bias = arrays(tokens=4)
    layer = made(kind, weight, bias, x)
    zeros = np.zeros_like(x)
    np.testing.assert_allclose(computed(layer, zeros), np.tile(bias, (4, 1)), atol=0.3)
    assert np.isfinite(computed(layer, x * 1e20)).all()
    constant = made(kind, np.zeros_like(weight), bias, zeros)
    np.testing.assert_allclose(computed(constant, x + 5), np.tile(bias, (4, 1)), atol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        GENERATOR.normal(0, 1, 5000),
        np.append(GENERATOR.normal(0, 1, 5000), [40, -9]),
        np.abs(GENERATOR.normal(0, 1, 5000)),
        -np.abs(GENERATOR.standard_t(3, 5000)),
        np.full(50, 3e7, np.float32),
        np.zeros(50),
    ],
    ids=["normal", "outliers", "positive", "negative", "constant", "zeros"],
)
def test_the_range_has_the_least_errors(values):
    """No range of a grid has less than that, if the values are rounded in it."""

    def error(low, high):
        step = (high - low) / 255
        return ((low + np.clip(np.rint((values - low) / step), 0, 255) * step - values) ** 4).mean()

    least, most = min(values.min(), -1e-9), max(values.max(), 1e-9)
    grid = [
        error(least * i, most * j)
        for i in np.arange(0.3, 1.01, 0.1)
        for j in np.arange(0.3, 1.01, 0.1)
    ]
    low, high = find_range(values)
    assert least * 1.001 <= low < high <= most * 1.001
    assert error(low, high) <= min(grid) * 1.1 + 1e-20


@needs_vnni
@pytest.mark.parametrize("name", families.NAMES)
def test_every_layer_of_every_family_is_near_float32(name):
    config, batch = families.checkpoint(name).config, families.batch(name)
    encoder = BertEncoder(config, dense=INT8_DENSE)
    weights = families.weights(name)
    encoder.load_weights_dict(weights)
    quantize(encoder, weights, [batch])

    @tf.function(autograph=False)
    def run(batch):
        with traced_for("cpu"):
            return encoder(batch)["encoder_outputs"]

    real = batch["input_mask"] == 1
    found = np.stack(run({n: tf.constant(values) for n, values in batch.items()}))[:, real]
    wanted = np.stack(families.reference(name)["states"])[1:]
    sizes = np.linalg.norm(found, axis=-1) * np.linalg.norm(wanted, axis=-1)
    cosines = (found * wanted).sum(axis=-1) / sizes
    assert cosines.min() > 0.99
    assert np.abs(found - wanted).max() > 1e-4  # it is not float32 itself
    with exact_products(encoder, weights):
        exact = EncoderOutputs.from_dict(encoder(batch)).states
    families.assert_states(name, np.stack(exact), batch["input_mask"])
