"""A user's own model_fn and input_fn in the Estimator: any graph of TensorFlow 1."""

import functools
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow

from bert_features import Estimator, RunConfig, TextInputFn
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.official import modeling
from bert_features.official import tf1 as tf
from bert_features.official.model_fn import ModelFn
from bert_features.readers.input_example import InputExample
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.runtime.tensorflow_devices import Devices
from bert_features.text.tokenization import FullTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_tf1_checkpoint
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

WEIGHTS = random_weights(TOY)
HEAD = {
    "output_weights": np.arange(16, dtype=np.float32).reshape(2, 8) / 10,
    "output_bias": np.array([1.0, -1.0], np.float32),
}
LENGTHS = [6, 3, 8, 5, 4]
BATCH = random_batch(TOY, LENGTHS, 8)
IDS = np.array([7, 3, 9, 0, 4], np.int32)
FEATURES = {
    "unique_ids": IDS,
    "input_ids": BATCH["input_word_ids"],
    "input_mask": BATCH["input_mask"],
    "input_type_ids": BATCH["input_type_ids"],
}
STATES = NumpyEncoder(TOY, WEIGHTS)(*BATCH.values())


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices(FEATURES).batch(params["batch_size"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A fine-tuned model: the encoder and a classifier."""
    folder = tmp_path_factory.mktemp("fine_tuned")
    return str(write_tf1_checkpoint(folder / "model.ckpt-5", WEIGHTS, extra=HEAD))


def classifier(init_checkpoint):
    """A model_fn as run_classifier.py has it: the encoder, and variables of its own."""

    def model_fn(features, labels, mode, params):
        assert labels is None
        model = modeling.BertModel(
            TOY, False, features["input_ids"], features["input_mask"], features["input_type_ids"]
        )
        output_weights = tf.get_variable(
            "output_weights", [2, 8], initializer=tf.truncated_normal_initializer(stddev=0.02)
        )
        output_bias = tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer())
        first = model.get_sequence_output()[:, 0]
        logits = tf.nn.bias_add(tf.matmul(first, output_weights, transpose_b=True), output_bias)
        names, _ = modeling.get_assignment_map_from_checkpoint(
            tf.trainable_variables(), init_checkpoint
        )
        tf.train.init_from_checkpoint(init_checkpoint, names)
        predictions = {"unique_id": features["unique_ids"], "logits": logits}
        return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions)

    return model_fn


def check_classified(results):
    assert [int(result["unique_id"]) for result in results] == IDS.tolist()
    wanted = STATES[-1][:, 0] @ HEAD["output_weights"].T + HEAD["output_bias"]
    np.testing.assert_allclose([r["logits"] for r in results], wanted, rtol=0, atol=2e-5)


def two_devices_as(kind):
    """Two CPUs as TensorFlow treats several devices of a kind: on GPUs, XLA compiles the step."""
    names = [device.name for device in tensorflow.config.list_logical_devices("CPU")[:2]]
    devices = Devices(kind, 2, strategy=tensorflow.distribute.MirroredStrategy(names))
    return TensorFlowRuntime(devices=devices)


@pytest.mark.slow
def test_a_model_of_the_users_own_on_one_device(checkpoint):
    estimator = Estimator(classifier(checkpoint), predict_batch_size=2)
    check_classified(list(estimator.predict(input_fn)))
    traces = estimator.traces
    assert traces
    check_classified(list(estimator.predict(input_fn)))
    assert estimator.traces == traces


@pytest.mark.slow
@pytest.mark.release
def test_as_xla_compiles_it_on_several_gpus(checkpoint):
    """Batches are whole there: a shape is compiled for each."""
    runtime = two_devices_as("gpu")
    estimator = Estimator(classifier(checkpoint), predict_batch_size=4, runtime=runtime)
    check_classified(list(estimator.predict(input_fn)))


def attributions(features, mode, checkpoint):
    model = modeling.BertModel(TOY, False, features["input_ids"], features["input_mask"])
    tf.train.init_from_checkpoint(checkpoint, {"bert/": "bert/"})
    by = [model.get_embedding_output()]
    (gradients,) = tf.gradients(model.get_pooled_output()[:, :3], by)
    return tf.estimator.EstimatorSpec(mode, {"gradients": gradients})


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 3])
def test_gradients_are_those_of_a_plain_graph(checkpoint, copies):
    """In the forms of operations for few tokens, and for more, of which some have no gradient."""
    batch = {name: np.tile(FEATURES[name], (copies, 1)) for name in ("input_ids", "input_mask")}

    def model_fn(features, mode):
        return attributions(features, mode, checkpoint)

    with tf.Graph().as_default(), tf.Session() as session:
        plain = model_fn({name: tf.constant(value) for name, value in batch.items()}, "infer")
        session.run(tf.global_variables_initializer())
        wanted = session.run(plain.predictions["gradients"])
    estimator = Estimator(model_fn)
    results = list(estimator.predict(lambda: tf.data.Dataset.from_tensors(batch)))
    got = [result["gradients"] for result in results]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
    assert np.abs(wanted).max() > 0.1


def test_the_model_fn_learns_the_rows_of_its_device(checkpoint):
    seen = []

    def model_fn(features, params):
        seen.append((params, features["input_ids"].shape.as_list()))
        predictions = {"unique_id": features["unique_ids"], "twice": features["input_ids"] * 2}
        return tf.estimator.EstimatorSpec("infer", predictions)

    runtime = two_devices_as("gpu")
    estimator = Estimator(model_fn, predict_batch_size=6, params={"depth": 3}, runtime=runtime)
    results = list(estimator.predict(input_fn))
    assert [int(result["unique_id"]) for result in results] == IDS.tolist()
    params = {"batch_size": 3, "depth": 3}
    assert seen == [(params, [None, 8]), (params, [3, 8])]


def doubled(features, mode):
    """A variable made, and read, where TensorFlow 1 allowed it."""
    x = features["x"]

    def scaled(value):
        return value * tf.get_variable("scale", [2], initializer=tf.constant_initializer(2.0))

    with tf.variable_scope("", reuse=tf.AUTO_REUSE), tf.control_dependencies([x]):
        by_row = tf.map_fn(scaled, x)
        chosen = tf.cond(tf.constant(True), lambda: scaled(x), lambda: x)
    local = tf.get_variable(
        "local", [2], initializer=tf.ones_initializer(), collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    return tf.estimator.EstimatorSpec(
        mode, {"by_row": by_row, "chosen": chosen, "local": x * local}
    )


@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.eight_devices)])
def test_variables_in_loops_branches_and_collections(devices):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    dataset = tf.data.Dataset.from_tensor_slices({"x": x}).batch(3)
    estimator = Estimator(doubled)
    assert estimator.devices.count == devices
    (batch,) = estimator.predict(lambda: dataset, yield_single_examples=False)
    for name, wanted in (("by_row", 2 * x), ("chosen", 2 * x), ("local", x)):
        np.testing.assert_array_equal(batch[name], wanted)


def scaling(features, params, mode):
    table = tf.get_variable("table", [1], initializer=tf.zeros_initializer())
    scale = params.get("scale", 1.0)
    return tf.estimator.EstimatorSpec(mode, {"y": features["x"] * scale + table})


X = {"x": np.array([1.0, 2.0], np.float32)}


def x_input_fn():
    return tf.data.Dataset.from_tensor_slices(X).batch(2)


def ys(estimator, **settings):
    return [float(result["y"]) for result in estimator.predict(x_input_fn, **settings)]


def test_arguments_that_a_partial_has_bound_stay():
    model_fn = functools.partial(scaling, params={"scale": 10.0})
    assert ys(Estimator(model_fn, params={"scale": 3.0})) == [10.0, 20.0]


def stored(path, table):
    return str(write_tf1_checkpoint(path, {}, extra={"table": table}))


def test_variables_come_from_a_checkpoint(tmp_path):
    """As an Estimator of TensorFlow 1 restores a model that it has trained; each time again."""
    estimator = Estimator(scaling, RunConfig(model_dir=str(tmp_path / "none")))
    assert ys(estimator) == [1.0, 2.0]
    for value in (1.0, 10.0):
        path = stored(tmp_path / "model.ckpt-9", np.array([value], np.float32))
        assert ys(estimator, checkpoint_path=path) == [1.0 + value, 2.0 + value]
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    assert ys(Estimator(scaling, RunConfig(model_dir=str(tmp_path)))) == [11.0, 12.0]
    assert Estimator(scaling, model_dir="m").model_dir == str(Path.cwd() / "m")
    assert Estimator(scaling, model_dir="gs://b/m").model_dir == "gs://b/m"


def test_a_scaffold_names_the_checkpoint(tmp_path):
    path = stored(tmp_path / "model.ckpt", np.array([5.0], np.float32))

    def model_fn(features, mode, params):
        spec = scaling(features, params, mode)
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}

        def scaffold_fn():
            tf.train.init_from_checkpoint(path, variables)
            return tf.train.Scaffold()

        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, predictions=spec.predictions, scaffold_fn=scaffold_fn
        )

    assert ys(Estimator(model_fn)) == [6.0, 7.0]


def test_random_variables_are_reported(tmp_path, caplog):
    """The official Estimator computed with them without a word. One is not: nothing needs it."""
    path = stored(tmp_path / "model.ckpt", np.array([5.0], np.float32))

    def model_fn(features, params, mode):
        spec = scaling(features, params, mode)
        tf.train.init_from_checkpoint(path, {"table": tf.trainable_variables()[0]})
        tf.get_variable("unused", [3])
        y = spec.predictions["y"] * tf.get_variable("random", [1])
        return tf.estimator.EstimatorSpec(mode, {"y": y})

    with caplog.at_level(logging.WARNING, "bert_features"):
        ys(Estimator(model_fn))
    (record,) = [r for r in caplog.records if "no checkpoint" in r.message]
    assert record.message == (
        "no checkpoint was read into 1 of the 2 variables that the predictions depend on: random"
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        # A table of shape [] or [2] would be broadcast without a word.
        (np.float32(1), r"table is float32 \[\]"),
        (np.ones(1), r"table is float64 \[1\]"),
        (None, r"model\.ckpt"),
    ],
)
def test_a_checkpoint_of_other_variables_is_refused(tmp_path, table, message):
    path = str(tmp_path / "model.ckpt")
    if table is not None:
        stored(path, table)
    with pytest.raises(CheckpointError, match=message):
        ys(Estimator(scaling), checkpoint_path=path)


def test_a_checkpoint_without_the_variables_is_refused(toy):
    with pytest.raises(CheckpointError, match="of the model_fn"):
        ys(Estimator(scaling), checkpoint_path=f"{toy}/bert_model.ckpt")


def test_two_runs_at_a_time():
    def model_fn(features, mode):
        return tf.estimator.EstimatorSpec(mode, {"sum": sum(features.values())})

    estimator = Estimator(model_fn)
    one = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0]}).batch(1)
    two = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0], "z": [4.0, 4.0]}).batch(1)
    runs = [estimator.predict(lambda: one), estimator.predict(lambda: two)]
    assert [float(next(run)["sum"]) for run in [*runs, *runs]] == [1.0, 5.0, 2.0, 6.0]


def test_a_batch_is_asked_for_when_the_one_before_is_taken():
    """Programs feed a generator with the text of the next call, which must not be read ahead."""
    asked = []

    def rows():
        while True:
            yield {"x": asked[-1]}

    def generator_fn():
        signature = {"x": tf.TensorSpec([], tf.float32)}
        return tf.data.Dataset.from_generator(rows, output_signature=signature).batch(1)

    def model_fn(features, mode):
        return tf.estimator.EstimatorSpec(mode, {"y": features["x"] * 2})

    predictions = Estimator(model_fn, predict_batch_size=1).predict(generator_fn)
    for value in (1.0, 5.0, 3.0, 7.0):
        asked.append(value)
        assert float(next(predictions)["y"]) == 2 * value


def test_features_that_no_prediction_computes_with_stay_on_the_host():
    """XLA takes no strings."""

    def model_fn(features, mode):
        assert sorted(features) == ["guid", "unused", "x"]
        predictions = {"guid": features["guid"], "y": features["x"] * 2}
        return tf.estimator.EstimatorSpec(mode, predictions)

    features = {"guid": [b"a", b"b", b"c"], "unused": [b"d"] * 3, "x": [1.0, 2.0, 3.0]}
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(2)
    estimator = Estimator(model_fn, predict_batch_size=2, runtime=two_devices_as("gpu"))
    results = list(estimator.predict(lambda: dataset))
    assert [(result["guid"], float(result["y"])) for result in results] == [
        (b"a", 2.0),
        (b"b", 4.0),
        (b"c", 6.0),
    ]


def with_mode_and_config(mode, params, config, shuffle=False):
    assert (mode, config.model_dir, shuffle) == ("infer", None, False)
    return input_fn(params)


def open_ended(params, **others):
    assert not others
    return input_fn(params)


def by_default(batch_size=4):
    return input_fn({"batch_size": batch_size})


def with_labels(params):
    dataset = tf.data.Dataset.from_tensor_slices((FEATURES, np.zeros(5, np.int32)))
    return dataset.batch(params["batch_size"])


def without_params():
    return tf.data.Dataset.from_tensor_slices(FEATURES).batch(5, drop_remainder=True)


def with_a_batch_without_rows(params):
    empty = tf.data.Dataset.from_tensors({n: values[:0] for n, values in FEATURES.items()})
    return empty.concatenate(input_fn(params))


def adding(features, labels, mode):
    assert labels is None
    total = tf.reduce_sum(features["input_ids"], axis=1)
    return tf.estimator.EstimatorSpec(mode, {"unique_id": features["unique_ids"], "total": total})


@pytest.fixture(scope="module")
def estimator():
    return Estimator(adding, predict_batch_size=2)


class TestInputs:
    """What an input_fn may be."""

    @pytest.mark.parametrize(
        "own",
        [
            with_mode_and_config,
            open_ended,
            by_default,
            functools.partial(by_default, batch_size=3),
            with_labels,
            without_params,
            with_a_batch_without_rows,
        ],
    )
    def test_every_form_of_an_input_fn(self, estimator, own):
        results = [(int(r["unique_id"]), int(r["total"])) for r in estimator.predict(own)]
        assert results == list(zip(IDS, FEATURES["input_ids"].sum(axis=1), strict=True))

    def test_none(self, estimator):
        empty = {name: values[:0] for name, values in FEATURES.items()}
        assert list(estimator.predict(lambda: tf.data.Dataset.from_tensors(empty).take(0))) == []

    def test_ours_for_a_users_model(self, estimator):
        """Rows of several lengths, with the ids under another name."""
        texts = ["is this jack ?", "no", "it is not . it is not .", "a"]
        examples = [InputExample(i, text) for i, text in enumerate(texts)]
        tokenizer = FullTokenizer(TOY_VOCAB)
        own = TextInputFn(lambda: examples, tokenizer, buckets=(6, 12))
        results = {int(r["unique_id"]): int(r["total"]) for r in estimator.predict(own)}
        ids = tokenizer.encode_ids(texts)
        assert results == {i: 2 + sum(row) + 3 for i, row in enumerate(ids)}

    def test_a_users_for_our_model(self):
        outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
        results = list(Estimator(ModelFn(TOY, WEIGHTS, outputs)).predict(input_fn))
        assert [int(result["unique_id"]) for result in results] == IDS.tolist()
        for row, length in enumerate(LENGTHS):
            got = results[row]["layer_output_0"][:length]
            np.testing.assert_allclose(got, STATES[-1][row, :length], rtol=0, atol=2e-5)
        unnumbered = tf.data.Dataset.from_tensors({**FEATURES, "unique_ids": np.full(5, -1)})
        estimator = Estimator(ModelFn(TOY, WEIGHTS, outputs))
        assert [r["unique_id"] for r in estimator.predict(lambda: unnumbered)] == [-1] * 5

    def test_masks_for_our_model(self):
        """Floats are fine; a value that the original would add as a fraction is an error."""
        outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
        estimator = Estimator(ModelFn(TOY, WEIGHTS, outputs))
        for factor in (1.0, 0.5):
            mask = BATCH["input_mask"].astype(np.float32) * np.float32(factor)
            dataset = tf.data.Dataset.from_tensors({**FEATURES, "input_mask": mask})
            results = estimator.predict(lambda dataset=dataset: dataset)
            if factor == 1.0:
                got = next(results)["layer_output_0"][: LENGTHS[0]]
                np.testing.assert_allclose(got, STATES[-1][0, : LENGTHS[0]], rtol=0, atol=2e-5)
            else:
                with pytest.raises(ConfigError, match=r"input_mask .* 0\.5"):
                    next(results)

    @pytest.mark.slow
    def test_a_users_own_around_ours_for_our_model(self):
        """Batches are whole; rows that TextInputFn added are dropped."""
        examples = [InputExample(i, text) for i, text in enumerate(["no", "a b", "it is"])]
        own = TextInputFn(lambda: examples, FullTokenizer(TOY_VOCAB), buckets=(6,))
        outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
        results = Estimator(ModelFn(TOY, WEIGHTS, outputs)).predict(lambda params: own(params))
        assert sorted(int(result["unique_id"]) for result in results) == [0, 1, 2]

    def test_what_our_model_lacks(self):
        outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
        few = tf.data.Dataset.from_tensor_slices({"input_ids": IDS[:, None]}).batch(8)
        with pytest.raises(ConfigError, match="expected also unique_ids"):
            list(Estimator(ModelFn(TOY, WEIGHTS, outputs)).predict(lambda: few))

    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (lambda: FEATURES, "returned {'unique_ids'"),
            (lambda: tf.data.Dataset.range(3), "the features are TensorSpec"),
            (lambda: tf.data.Dataset.from_tensors({"client": "a"}), "feature 'client'"),
            (lambda: tf.data.Dataset.from_tensors({"x": tf.ragged.constant([[1]])}), "feature 'x'"),
        ],
    )
    def test_what_it_may_not_be(self, estimator, made, message):
        with pytest.raises(ConfigError, match=message):
            list(estimator.predict(made))

    def test_in_a_graph(self):
        """Of the caller's, which computes between two predictions, and of a session."""
        with tf.Graph().as_default() as graph, tf.Session() as session:
            made = tf.contrib.tpu.TPUEstimator(adding, use_tpu=False, predict_batch_size=2)
            results = made.predict(input_fn)
            doubled = tf.placeholder(tf.int32, []) * 2
            placeholder = doubled.op.inputs[0]
            for ids in FEATURES["input_ids"]:
                total = next(results)["total"]
                assert session.run(doubled, {placeholder: total}) == 2 * ids.sum()
            assert len(graph.get_operations()) == 3
            assert next(results, None) is None

    def test_chosen_predictions(self, estimator):
        results = list(estimator.predict(input_fn, predict_keys=["total"]))
        assert [list(result) for result in results] == [["total"]] * 5
        with pytest.raises(ConfigError, match="predict_keys has 'x'"):
            list(estimator.predict(input_fn, predict_keys=["x"]))


def predicting(make, **settings):
    """A model_fn whose predictions are made of the ids; the settings of its spec are calls."""

    def model_fn(features, mode):
        predictions = make(features["input_ids"])
        made = {name: call() for name, call in settings.items()}
        return tf.estimator.EstimatorSpec(mode, predictions, **made)

    return model_fn


def scaled(ids):
    return {"x": tf.cast(ids, tf.float32) * tf.get_variable("scale", [8])}


def scaled_by(variable):
    return predicting(lambda ids: {"x": variable() * tf.cast(ids, tf.float32)})


def listed():
    tf.get_variable("scale", [8])
    return tf.trainable_variables()[0]


def table():
    names = tf.lookup.KeyValueTensorInitializer([0, 1], ["person", "place"], tf.int32)
    return tf.lookup.StaticHashTable(names, "none", name="names")


def saver():
    return tf.train.Saver({"other": tf.trainable_variables()[0]})


@pytest.mark.parametrize(
    ("model_fn", "message"),
    [
        (lambda features, mode: {"x": features["input_ids"]}, r"returned \{'x'"),
        (predicting(lambda ids: ids), "returned EstimatorSpec"),
        (predicting(lambda ids: {"mean": tf.reduce_mean(ids)}), "'mean' .* is a scalar"),
        (predicting(lambda ids: {"twice": tf.tile(ids, [2, 1])}), "'twice' .* shape"),
        (scaled_by(lambda: tf.Variable(2.0, name="scale")), "variables scale"),
        (predicting(lambda ids: {"layers": [ids] * 5}), "'layers' .* is a list"),
        (predicting(lambda ids: {"names": table().lookup(ids)}), "tables names"),
        (scaled_by(listed), "variables scale"),
        (predicting(scaled, scaffold=lambda: tf.train.Scaffold(init_fn=print)), "has a init_fn"),
        (predicting(scaled, scaffold=lambda: tf.train.Scaffold(saver=saver())), "has a saver"),
    ],
)
def test_what_cannot_run_is_one_error(model_fn, message):
    with pytest.raises(ConfigError, match=message):
        list(Estimator(model_fn).predict(input_fn))


def test_a_checkpoint_path_for_our_own_model_fn(toy):
    outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
    estimator = Estimator(ModelFn(TOY, WEIGHTS, outputs))
    with pytest.raises(ConfigError, match="model_fn_builder"):
        list(estimator.predict(input_fn, checkpoint_path=f"{toy}/bert_model.ckpt"))


def test_a_trained_model_in_the_model_dir_of_our_own_model_fn(tmp_path):
    """The original read the weights from there."""
    stored(tmp_path / "model.ckpt-9", np.ones(1, np.float32))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"')
    outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], TOY)
    estimator = Estimator(ModelFn(TOY, WEIGHTS, outputs), model_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"model_dir .*model\.ckpt-9"):
        next(estimator.predict(input_fn))
