"""model_fn and Estimator: the official calls, on one device and on eight."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features.batches.input_fn import TextInputFn
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.errors import ConfigError, InputError
from bert_features.official.estimator import Estimator
from bert_features.official.features import convert_examples_to_features
from bert_features.official.input_fn import input_fn_builder
from bert_features.official.model_fn import ModelFn
from bert_features.readers.input_example import InputExample
from bert_features.runtime.tensorflow import Started, TensorFlowRuntime
from bert_features.runtime.tensorflow_devices import Devices
from bert_features.text.tokenization import FullTokenizer
from tests.conftest import NUM_DEVICES
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

WEIGHTS = random_weights(TOY)
TEXTS = ["is this jacksonville ?", "no", "it is not .", "", "the a b a b a b a b", "jackson"]
SEQ_LENGTH = 12


def outputs(**settings):
    return plan_outputs([OutputConfig.of(settings)], TOY)


@pytest.fixture(scope="module")
def features():
    examples = [InputExample(10 + i, text) for i, text in enumerate(TEXTS)]
    return convert_examples_to_features(examples, SEQ_LENGTH, FullTokenizer(TOY_VOCAB))


class FakeRuntime:
    """A runtime whose steps add up the ids of a batch, when they are waited for."""

    any_shape, batching = True, {}
    devices = Devices("cpu", 1)

    def __init__(self, name="tensorflow"):
        self.name, self.dropped = name, []

    def compile(self, step, weights):
        def start(batch):
            total = int(batch["input_word_ids"].sum())
            outputs = {"x": np.array([total])}
            return Started(lambda: outputs, cancel=lambda: self.dropped.append(total))

        start.in_flight = 3
        return start


def test_a_run_that_is_left_drops_what_it_started(features):
    runtime = FakeRuntime()
    model_fn = ModelFn(TOY, WEIGHTS, outputs(layers=[-1]))
    estimator = Estimator(model_fn, predict_batch_size=1, runtime=runtime)
    run = estimator.predict(input_fn_builder(features, SEQ_LENGTH))
    next(run)
    run.close()
    assert runtime.dropped == [sum(features[i].input_ids) for i in (1, 2)]


def test_jax_runs_only_our_model_fn():
    assert Estimator(ModelFn(TOY, WEIGHTS, outputs(layers=[-1])), runtime=FakeRuntime("jax"))
    with pytest.raises(ConfigError, match="the runtime is jax"):
        Estimator(lambda features: None, runtime=FakeRuntime("jax"))


@pytest.mark.slow
@pytest.mark.eight_devices
def test_eight_devices_give_what_one_gives(request, features):
    """A batch of 5 has 8 rows on the devices; the caller gets no filler."""
    wanted = outputs(layers=[0, "embeddings"])
    input_fn = input_fn_builder(features, SEQ_LENGTH)
    on_eight = Estimator(ModelFn(TOY, WEIGHTS, wanted), predict_batch_size=5)
    assert (on_eight.devices.kind, on_eight.devices.count) == ("cpu", NUM_DEVICES)
    batches = list(on_eight.predict(input_fn, yield_single_examples=False))
    request.getfixturevalue("one_device")
    on_one = Estimator(ModelFn(TOY, WEIGHTS, wanted), predict_batch_size=5)
    assert on_one.devices.count == 1
    rows = list(on_one.predict(input_fn))
    assert [b["unique_id"].tolist() for b in batches] == [[10, 11, 12, 13, 14], [15]]
    for name in rows[0]:
        eight = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_allclose(eight, [row[name] for row in rows], rtol=0, atol=1e-6)


@pytest.mark.eight_devices
def test_every_device_gets_its_share():
    seen = []

    def step(weights, batch):
        context = tf.distribute.get_replica_context()
        seen.append(context.replica_id_in_sync_group)
        return {"sum": tf.reduce_sum(batch["x"], axis=1) * weights[0]}

    compiled = TensorFlowRuntime("cpu").compile(step, [keras.Variable(2.0)])
    x = np.arange(2 * NUM_DEVICES * 3, dtype=np.float32).reshape(-1, 3)
    result = compiled({"x": tf.constant(x)})()
    assert len(seen) == NUM_DEVICES
    np.testing.assert_array_equal(result["sum"], 2 * x.sum(axis=1))


@pytest.mark.eight_devices
def test_a_batch_that_cannot_be_shared_out():
    model_fn = ModelFn(TOY, WEIGHTS, outputs(layers=[-1]))
    step = TensorFlowRuntime("cpu").compile(model_fn.step, model_fn.weights)
    with pytest.raises(ConfigError, match=r"12 .* 8 devices; take 16"):
        step(random_batch(TOY, [3] * 12, 4))


def test_errors_of_the_input_come_through_as_they_are():
    def broken():
        yield InputExample(0, "a")
        raise InputError("line 2 is bad")

    input_fn = TextInputFn(broken, FullTokenizer(TOY_VOCAB), buckets=(6,))
    estimator = Estimator(ModelFn(TOY, WEIGHTS, outputs(layers=[-1])))
    with pytest.raises(InputError, match="line 2 is bad"):
        list(estimator.predict(input_fn))


def test_keras_on_another_backend(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(ConfigError, match="Keras runs on jax"):
        TensorFlowRuntime()


@pytest.mark.slow
def test_xla_compiles_what_each_of_several_devices_does():
    """As on several GPUs, with two CPUs in their place."""
    names = [device.name for device in tf.config.list_logical_devices("CPU")[:2]]
    devices = Devices("gpu", 2, strategy=tf.distribute.MirroredStrategy(names))
    model_fn = ModelFn(TOY, WEIGHTS, outputs(layers=[0]))
    step = TensorFlowRuntime(devices=devices).compile(model_fn.step, model_fn.weights)
    batch = random_batch(TOY, [5, 3, 4, 2], 6)
    got = step({name: tf.constant(value) for name, value in batch.items()})()["layer_output_0"]
    names = ("input_word_ids", "input_mask", "input_type_ids")
    want = NumpyEncoder(TOY, WEIGHTS)(*(batch[name] for name in names))[1]
    for row, length in enumerate([5, 3, 4, 2]):
        np.testing.assert_allclose(got[row, :length], want[row, :length], rtol=0, atol=2e-5)
