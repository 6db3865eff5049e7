"""The device step: pure, and of the dtype that is wanted."""

import functools

import numpy as np
import tensorflow as tf

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.blocks import Block
from bert_features.encoder.forms import traced_for
from bert_features.encoder.step import DeviceStep
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_batch, random_weights

WEIGHTS = random_weights(TOY)


def outputs(**settings):
    return plan_outputs([OutputConfig.of(settings)], TOY)


def test_the_step_is_pure():
    """Other weights in, other outputs out; the model's own variables play no part."""
    device_step = DeviceStep(TOY, WEIGHTS, outputs(layers=[-1]))
    other = random_weights(TOY, seed=9)
    batch = random_batch(TOY, [5, 3], 5)
    values = [v.numpy() for v in DeviceStep(TOY, other, device_step.outputs).weights]
    got = np.asarray(device_step.step(values, batch)["layer_output_0"])
    want = NumpyEncoder(TOY, other)(*batch.values())[-1]
    real = batch["input_mask"] == 1
    np.testing.assert_allclose(got[real], want[real], atol=2e-5)


def test_equal_blocks_are_traced_once_and_each_has_its_weights(monkeypatch):
    calls, call = [], Block.call

    @functools.wraps(call)
    def counted(self, *args, **kwargs):
        calls.append(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(Block, "call", counted)
    device_step = DeviceStep(TOY, WEIGHTS, outputs(layers=[-1]))
    batch = random_batch(TOY, [5, 3], 5)
    values = [v.value for v in device_step.weights]
    with traced_for("cpu", few_tokens=True):
        got = tf.function(device_step.step)(values, batch)["layer_output_0"].numpy()
    assert len(calls) == 1 < TOY.num_hidden_layers
    want = NumpyEncoder(TOY, WEIGHTS)(*batch.values())[-1]
    real = batch["input_mask"] == 1
    np.testing.assert_allclose(got[real], want[real], atol=2e-5)
