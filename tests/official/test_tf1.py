"""tf1: TensorFlow 1's names, and those of tf.contrib.tpu, with the originals' arguments."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow

from bert_features.errors import ConfigError
from bert_features.official import tf1 as tf


def model_fn(features, labels, mode, params):
    assert params == {"a": 1, "batch_size": 2}
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, predictions={"x": features["x"] + 1})


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices({"x": [1, 2, 3]}).batch(params["batch_size"])


@pytest.fixture
def log(caplog):
    """The lines of TensorFlow's log at the level of the official program."""
    before = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.INFO)
    yield lambda: [r.getMessage() for r in caplog.records if r.name == "tensorflow"]
    tf.logging.set_verbosity(before)


@pytest.mark.parametrize(
    "name", ["app", "flags", "gfile", "logging", "train", "get_variable", "trainable_variables"]
)
def test_names_are_tensorflows_own(name):
    assert getattr(tf, name) is getattr(tensorflow.compat.v1, name)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: tf.contrib.layers, r"tf\.contrib\.layers is not here; .* has clus.*, tpu;"),
        (lambda: tf.contrib.tpu.bfloat16_scope, r"tf\.contrib\.tpu has InputPipelineConfig, Run"),
        (lambda: tf.estimator.train_and_evaluate, r"tf\.estimator has Estimator, .*migrating\.md"),
        (lambda: tf.made_up, r"tf\.made_up is not in TensorFlow 2\..*migrating\.md lists"),
    ],
)
def test_other_names_say_where_to_look(use, message):
    with pytest.raises(AttributeError, match=message):
        use()


def test_every_spelling_is_the_same():
    old = tf.compat.v1
    assert old.estimator.tpu.TPUEstimator is tf.contrib.tpu.TPUEstimator
    assert old.estimator.tpu.RunConfig is tf.estimator.tpu.RunConfig is tf.contrib.tpu.RunConfig
    assert old.disable_eager_execution is tf.disable_eager_execution
    resolver = tf.contrib.cluster_resolver.TPUClusterResolver
    assert old.distribute.cluster_resolver.TPUClusterResolver is resolver
    assert tf.distribute.MirroredStrategy is tensorflow.compat.v1.distribute.MirroredStrategy
    assert tf.compat.as_text(b"a") == "a"
    assert old.Session is tensorflow.compat.v1.Session


def test_records_are_mapped_and_batched():
    """As run_classifier.py reads its features."""
    dataset = tf.data.Dataset.range(5).apply(
        tf.contrib.data.map_and_batch(lambda x: x * 2, batch_size=2, drop_remainder=False)
    )
    assert [batch.numpy().tolist() for batch in dataset] == [[0, 2], [4, 6], [8]]


def test_everything_that_is_accepted(log):
    tpu = tf.contrib.tpu
    cluster = tf.contrib.cluster_resolver.TPUClusterResolver("grpc://10.0.0.2:8470", zone="b")
    assert cluster.get_master() == cluster.master() == "grpc://10.0.0.2:8470"
    config = tpu.RunConfig(
        cluster=cluster,
        master="grpc://10.0.0.2:8470",
        model_dir=None,
        save_checkpoints_steps=1000,
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=10,
            num_shards=8,
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    assert (config.model_dir, config.cluster) == (None, cluster)
    assert config.tpu_config.num_shards == 8
    estimator = tpu.TPUEstimator(
        use_tpu=True,
        model_fn=model_fn,
        config=config,
        params={"a": 1},
        train_batch_size=16,
        eval_batch_size=16,
        predict_batch_size=2,
    )
    assert [int(result["x"]) for result in estimator.predict(input_fn)] == [2, 3, 4]
    *unused, device = log()
    assert unused == [
        "TPUClusterResolver: not used any more (the devices of this machine are used): "
        "tpu='grpc://10.0.0.2:8470', zone='b'",
        "TPUConfig: not used any more (all devices of this machine share each batch): "
        "iterations_per_loop=10, num_shards=8, per_host_input_for_training=3",
        "RunConfig: not used any more (the devices of this machine are used): "
        "master='grpc://10.0.0.2:8470', save_checkpoints_steps=1000",
        "TPUEstimator: not used any more (it predicts): train_batch_size=16, eval_batch_size=16",
    ]
    assert device.startswith("use_tpu is True: running on the ")


def test_nothing_is_logged_without_need(log):
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn, None, tf.contrib.tpu.RunConfig(), {"a": 1}, False, predict_batch_size=2
    )
    assert estimator.devices.kind == "cpu"
    assert log() == []


def test_the_estimator_of_one_machine():
    session_config = tf.ConfigProto(allow_soft_placement=True)
    config = tf.estimator.RunConfig("folder", session_config=session_config)
    assert config.session_config is session_config
    params = {"a": 1, "batch_size": 2}
    estimator = tf.estimator.Estimator(model_fn=model_fn, config=config, params=params)
    assert isinstance(estimator, tf.estimator.Estimator)
    assert (estimator.config, estimator.params) == (config, params)
    assert estimator.model_dir == str(Path("folder").absolute())
    assert [int(result["x"]) for result in estimator.predict(input_fn)] == [2, 3, 4]
    other = tf.estimator.Estimator(model_fn, "other", config, None, None)
    assert other.model_dir == str(Path("other").absolute())


def test_what_would_change_numbers_is_refused():
    with pytest.raises(ConfigError, match="warm_start_from is given"):
        tf.contrib.tpu.TPUEstimator(model_fn, warm_start_from="model.ckpt")


@pytest.mark.parametrize("name", ["train", "evaluate", "export_saved_model"])
def test_training_is_refused(name):
    estimator = tf.contrib.tpu.TPUEstimator(model_fn, use_tpu=False)
    with pytest.raises(ConfigError, match="predicts only"):
        getattr(estimator, name)(input_fn, max_steps=1)


def test_a_program_enters_a_graph():
    """And stays there, also when it resets it; other threads do not."""

    def program():
        for _ in range(2):
            tf.reset_default_graph()
            gc.collect()
            assert not tensorflow.executing_eagerly()
            assert tf.get_default_graph().get_operations() == []
            doubled = tf.placeholder(tf.int32, [], "x") * 2
            with tf.Session() as session:
                assert session.run(doubled, {"x:0": 4}) == 8

    with ThreadPoolExecutor() as threads:
        threads.submit(program).result()
    assert tensorflow.executing_eagerly()


def test_a_placeholder_says_how_to_enter_a_graph():
    with pytest.raises(ConfigError, match="outside of a graph"):
        tf.placeholder(tf.int32, [None, 8])


def test_eager_execution_stays_on(log):
    tf.disable_v2_behavior()
    tf.disable_eager_execution()
    assert tensorflow.executing_eagerly()
    assert log() == ["eager execution stays on: an Estimator builds a graph of its own"] * 2
