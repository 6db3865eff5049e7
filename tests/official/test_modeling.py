"""modeling: the calls of google-research/bert's modeling.py and modeling_test.py, restated."""

import random
import re

import numpy as np
import pytest

from bert_features.encoder.forms import traced_for
from bert_features.errors import CheckpointError, ConfigError
from bert_features.official import modeling
from bert_features.official import tf1 as tf
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_tf1_checkpoint
from tests.toy import TOY, random_batch, random_weights

WEIGHTS = random_weights(TOY)


class TestBertModel:
    """modeling_test.py, without training; its tester has `is_training=True`."""

    @pytest.mark.slow
    def test_default(self):
        batch, length = 13, 7
        config = modeling.BertConfig(
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=5,
            num_attention_heads=4,
            intermediate_size=37,
            hidden_act="gelu",
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            max_position_embeddings=512,
            type_vocab_size=16,
            initializer_range=0.02,
        )
        with tf.Graph().as_default(), tf.Session() as sess:
            model = modeling.BertModel(
                config=config,
                is_training=False,
                input_ids=self.ids_tensor([batch, length], 99),
                input_mask=self.ids_tensor([batch, length], vocab_size=2),
                token_type_ids=self.ids_tensor([batch, length], 16),
                scope=None,
            )
            outputs = {
                "embedding_output": model.get_embedding_output(),
                "sequence_output": model.get_sequence_output(),
                "pooled_output": model.get_pooled_output(),
                "all_encoder_layers": model.get_all_encoder_layers(),
            }
            init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
            sess.run(init_op)
            result = sess.run(outputs)
        assert result["embedding_output"].shape == (batch, length, 32)
        assert result["sequence_output"].shape == (batch, length, 32)
        assert result["pooled_output"].shape == (batch, 32)
        assert len(result["all_encoder_layers"]) == 5

    def ids_tensor(self, shape, vocab_size):
        values = [random.Random(3).randint(0, vocab_size - 1) for _ in range(shape[0] * shape[1])]
        return tf.constant(value=values, dtype=tf.int32, shape=shape)


def test_config_by_place_and_by_name():
    by_place = modeling.BertConfig(30, 8, 3, 2, 16, "relu", 0.0, 0.0, 24, 2, 0.1)
    assert by_place.to_dict() == {
        "vocab_size": 30,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 24,
        "type_vocab_size": 2,
        "initializer_range": 0.1,
    }
    by_place.hidden_size = 4  # as code for it does
    assert modeling.BertConfig.from_dict(by_place.to_dict()) == by_place


def test_config_file_keeps_further_keys(tmp_path):
    file = tmp_path / "bert_config.json"
    file.write_text('{"vocab_size": 5, "hidden_act": "gelu", "pooler_type": "first"}')
    config = modeling.BertConfig.from_json_file(str(file))
    assert (config.vocab_size, config.pooler_type, config.num_hidden_layers) == (5, "first", 12)
    assert config.to_json_string().startswith('{\n  "attention_probs_dropout_prob": 0.1,')
    with pytest.raises(CheckpointError, match=r"cannot read .*none\.json"):
        modeling.BertConfig.from_json_file(tmp_path / "none.json")
    file.write_text("no JSON")
    with pytest.raises(CheckpointError, match=r"bert_config\.json"):
        modeling.BertConfig.from_json_file(file)


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("gelu", "gelu_tanh"), ("ReLU", "relu"), ("", "linear"), (None, "linear"), ("tanh", "tanh")],
)
def test_activations_are_the_official_ones(word, meaning):
    assert modeling.BertConfig(30, 8, 3, 2, hidden_act=word).checked().hidden_act == meaning


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 37}, "hidden_size 37 is not a multiple of num_attention_heads 12"),
        ({"hidden_act": "swish"}, "hidden_act"),
        ({"hidden_act": tf.nn.relu}, "hidden_act"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_a_config_is_checked_when_a_model_is_built(graph, settings, message):
    config = modeling.BertConfig(**{"vocab_size": 30, **settings})
    with pytest.raises(CheckpointError, match=message):
        modeling.BertModel(config, False, tf.constant([[1, 2]]))


def run_loaded(config, checkpoint, ids, mask=None, types=None, **settings):
    """All outputs of a model with the weights of a checkpoint, in a session."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = modeling.BertModel(config, False, ids, mask, types, **settings)
        assignment_map, names = modeling.get_assignment_map_from_checkpoint(
            tf.trainable_variables(), str(checkpoint)
        )
        assert all(variable.name in names for variable in tf.trainable_variables())
        tf.train.init_from_checkpoint(str(checkpoint), assignment_map)
        session.run(tf.global_variables_initializer())
        return session.run(vars(model))


@pytest.mark.slow
def test_every_output_is_the_official_one(minilm_tf1, official):
    lengths = np.array([len(ids) for ids in official.ids])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int32)
    ids, types = np.zeros_like(mask), np.zeros_like(mask)
    ids[mask == 1] = np.concatenate(official.ids)
    sep = official.ids[0][-1]
    for row, text in enumerate(official.texts):
        if " ||| " in text:
            first = np.flatnonzero(ids[row] == sep)[0]
            types[row, first + 1 : lengths[row]] = 1
    config = modeling.BertConfig.from_json_file(minilm_tf1 / "bert_config.json")
    got = run_loaded(config, minilm_tf1 / "bert_model.ckpt", ids, mask, types)
    states = [got["embedding_output"], *got["all_encoder_layers"]]
    for state, wanted in zip(states, [official.embedding_output, *official.layers], strict=True):
        np.testing.assert_allclose(state[mask == 1], np.concatenate(wanted), rtol=0, atol=2e-5)
    np.testing.assert_allclose(got["pooled_output"], official.pooled_output, rtol=0, atol=2e-5)
    assert got["embedding_table"].shape == (30522, 384)


@pytest.mark.parametrize("one_hot", [False, True])
def test_mask_and_types_may_be_left_out(toy, one_hot):
    ids = random_batch(TOY, [6, 6], 6)["input_word_ids"]
    config = modeling.BertConfig.from_dict(TOY.model_dump())
    got = run_loaded(config, f"{toy}/bert_model.ckpt", ids, use_one_hot_embeddings=one_hot)
    wanted = NumpyEncoder(TOY, WEIGHTS)(ids, np.ones_like(ids), np.zeros_like(ids))
    for state, layer in zip(got["all_encoder_layers"], wanted[1:], strict=True):
        np.testing.assert_allclose(state, layer, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(got["embedding_table"], WEIGHTS["embeddings/word_embeddings"])


# Scores near 20,000 have three digits behind the point in float32, there and here.
@pytest.mark.parametrize(
    ("values", "tolerance", "device"),
    [
        ([3, 2, 1, 0, -1, 3], 1e-2, ("cpu", {})),
        ([0.9999] * 6, 2e-5, ("cpu", {"row_limit": 3})),
        ([1, 0.9999, 0.9998, 0.5, 0, 1], 2e-5, ("cpu", {"row_limit": 9})),
        ([1, 0.9999, 0.9998, 0.5, 0, 1], 2e-5, ("tpu", {})),
    ],
)
def test_a_mask_of_any_values_has_the_official_arithmetic(toy, values, tolerance, device):
    kind, choices = device
    ids = random_batch(TOY, [6, 6], 6)["input_word_ids"]
    mask = np.array([values, [1, 1, 1, 1, 0, 0]], np.float32)
    with traced_for(kind, **choices):
        got = run_loaded(TOY, f"{toy}/bert_model.ckpt", ids, mask)
    encoder = NumpyEncoder(TOY, WEIGHTS)
    encoder.bias = (1 - mask) * -10000.0
    wanted = encoder(ids, mask, np.zeros_like(ids))
    np.testing.assert_allclose(got["sequence_output"], wanted[-1], rtol=0, atol=tolerance)


@pytest.mark.parametrize("bad", [-1, 30])
def test_ids_that_the_vocabulary_lacks(graph, bad):
    model = modeling.BertModel(TOY, False, tf.constant([[2, bad, 3]]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 30 is not in \[0, 30\)"):
            session.run(model.get_sequence_output())


def test_variables_have_the_official_names(toy):
    with tf.Graph().as_default():
        modeling.BertModel(TOY, False, tf.constant([[1, 2]]))
        modeling.BertModel(TOY, False, tf.constant([[1, 2]]), scope="other")
        names = {variable.name for variable in tf.trainable_variables()}
    assert names == {f"{scope}/{name}:0" for scope in ("bert", "other") for name in WEIGHTS}


def test_outside_of_a_graph_it_is_refused():
    """It would compute with random weights: no checkpoint can be read before."""
    with pytest.raises(ConfigError, match="outside of a graph"):
        modeling.BertModel(TOY, False, [[1, 2, 3]])


def test_a_relative_of_bert_is_refused(graph):
    config = modeling.BertConfig.from_dict({"vocab_size": 30, "model_type": "electra"})
    with pytest.raises(ConfigError, match="model_type electra"):
        modeling.BertModel(config, False, tf.constant([[1, 2]]))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("from bert_features.official import optimization", "to train"),
        ("from bert_features.official.modeling import gelu", r"use gelu\(x, approximate=True\)"),
        ("modeling.transformer_model", "use BertEncoder"),
    ],
)
def test_a_name_that_is_left_out_says_what_to_use(line, instead):
    with pytest.raises(ImportError, match=rf"\w+\.\w+ is not here; {instead}"):
        exec(line, {"modeling": modeling})


def test_shapes_of_tensors(graph):
    known = tf.ones([2, 3])
    assert modeling.get_shape_list(known) == modeling.get_shape_list(known, [2, 3]) == [2, 3]
    partly = tf.placeholder(tf.int32, [None, 3], "ids")
    batch, length = modeling.get_shape_list(partly, expected_rank=2)
    assert length == 3
    with tf.Session() as session:
        assert session.run(batch, {partly: [[1, 2, 3]] * 4}) == 4
    with pytest.raises(ValueError, match=r"ids:0 .* ranks: \[3\]"):
        modeling.get_shape_list(partly, 3)
    with pytest.raises(ValueError, match=r"mine .* ranks: \[1, 3\]"):
        modeling.get_shape_list(partly, [1, 3], "mine")


def test_a_mask_for_each_token():
    made = modeling.create_attention_mask_from_input_mask(
        tf.zeros([2, 3, 8]), tf.constant([[1, 1, 0, 0], [1, 0, 0, 0]])
    )
    wanted = np.repeat([[[1, 1, 0, 0]], [[1, 0, 0, 0]]], 3, axis=1)
    np.testing.assert_array_equal(made, wanted)
    assert made.dtype == tf.float32


@pytest.mark.parametrize("scope", [None, "tower"])
def test_tensors_have_the_official_names(toy, scope):
    """Those by which programs find layers, freeze and cut graphs."""
    ids = random_batch(TOY, [6, 4], 6)["input_word_ids"]
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2])
    norm, prefix = "LayerNorm/batchnorm/add_1", scope or "bert"
    names = [f"embeddings/{norm}", *(f"encoder/Reshape_{i}" for i in (2, 3, 4))]
    flat = ["encoder/Reshape_1", *(f"encoder/layer_{i}/output/{norm}" for i in range(3))]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        model = modeling.BertModel(TOY, False, tf.constant(ids), mask, scope=scope)
        found = {
            name: graph.get_tensor_by_name(f"{prefix}/{name}:0")
            for name in [*names, *flat, "pooler/Squeeze", "pooler/dense/Tanh"]
        }
        variables = {f"bert/{name}": f"{prefix}/{name}" for name in WEIGHTS}
        tf.train.init_from_checkpoint(f"{toy}/bert_model.ckpt", variables)
        session.run(tf.global_variables_initializer())
        got = session.run(found)
    outputs = [model.get_embedding_output(), *model.get_all_encoder_layers()]
    assert [tensor.op.name for tensor in outputs] == [f"{prefix}/{name}" for name in names]
    assert model.get_sequence_output() is outputs[-1]
    assert model.get_pooled_output().op.name == f"{prefix}/pooler/dense/Tanh"
    encoder = NumpyEncoder(TOY, WEIGHTS)
    for name, other, wanted in zip(
        names, flat, encoder(ids, mask, np.zeros_like(ids)), strict=True
    ):
        np.testing.assert_allclose(got[name], wanted, rtol=0, atol=2e-5)
        np.testing.assert_array_equal(got[other], got[name].reshape(12, 8))
    np.testing.assert_array_equal(got["pooler/Squeeze"], got[names[-1]][:, 0])
    wanted = encoder.pooled(got[names[-1]])
    np.testing.assert_allclose(got["pooler/dense/Tanh"], wanted, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_what_is_fed_is_computed_with(toy):
    """Attributions and attacks feed the embeddings, or ask for gradients by an output."""
    ids, other = (random_batch(TOY, [6, 6], 6, seed=s)["input_word_ids"] for s in (1, 2))
    encoder, ones, zeros = NumpyEncoder(TOY, WEIGHTS), np.ones((2, 6), int), np.zeros((2, 6), int)
    states = encoder(other, ones, zeros)
    pooled = encoder.pooled(states[-1])
    with tf.Graph().as_default(), tf.Session() as session:
        model = modeling.BertModel(TOY, False, tf.constant(ids))
        embedded, last = model.get_embedding_output(), model.get_sequence_output()
        by_embeddings, by_last = tf.gradients(model.get_pooled_output(), [embedded, last])
        tf.train.init_from_checkpoint(f"{toy}/bert_model.ckpt", {"bert/": "bert/"})
        session.run(tf.global_variables_initializer())
        wanted = [model.get_pooled_output(), last, by_last[:, 0]]
        got = session.run(wanted, {embedded: states[0]})
        got.append(session.run(model.get_pooled_output(), {last: states[-1]}))
        gradient, step = session.run(by_embeddings, {embedded: states[0]}), 1e-2
        moved = [states[0] + sign * step * gradient for sign in (1, -1)]
        up, down = (session.run(model.get_pooled_output(), {embedded: x}).sum() for x in moved)
    slope = (1 - pooled**2) @ WEIGHTS["pooler/dense/kernel"].T
    for value, expected in zip(got, [pooled, states[-1], slope, pooled], strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=2e-5)
    assert (up - down) / (2 * step) == pytest.approx((gradient**2).sum(), rel=1e-2)


@pytest.fixture
def graph():
    with tf.Graph().as_default():
        yield


def test_training_is_refused():
    with pytest.raises(ConfigError, match="is_training is True"):
        modeling.BertModel(TOY, True, tf.constant([[1, 2]]))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], re.escape("input_ids is (2,); allowed ranks: [2]")),
        ([[1] * 25], "input_ids has rows of 25 tokens; max_position_embeddings allows 24"),
    ],
)
def test_wrong_inputs(graph, ids, message):
    with pytest.raises(ValueError, match=message):
        modeling.BertModel(TOY, False, tf.constant(ids))


@pytest.mark.parametrize("shape", [(2, 6, 6), (2, 1), (6,)])
def test_wrong_masks(graph, shape):
    with pytest.raises(ValueError, match=r"input_mask is \(.*, but input_ids is \(2, 6\)"):
        modeling.BertModel(TOY, False, tf.ones((2, 6), tf.int32), tf.ones(shape))


class TestAssignmentMap:
    """get_assignment_map_from_checkpoint."""

    def call(self, checkpoint, scope=None):
        with tf.Graph().as_default():
            modeling.BertModel(TOY, False, tf.constant([[1, 2]]), scope=scope)
            tf.get_variable("output_bias", [2])
            return modeling.get_assignment_map_from_checkpoint(
                tf.trainable_variables(), str(checkpoint)
            )

    def test_it_names_what_both_have(self, tmp_path):
        slots = {"bert/pooler/dense/bias/adam_m": WEIGHTS["pooler/dense/bias"]}
        checkpoint = write_tf1_checkpoint(tmp_path / "model.ckpt", WEIGHTS, extra=slots)
        names, initialized = self.call(checkpoint)
        assert names == {f"bert/{name}": f"bert/{name}" for name in WEIGHTS}
        assert initialized.keys() == {s for name in names for s in (name, f"{name}:0")}

    @pytest.mark.slow
    def test_a_lost_weight_is_an_error_unless_it_is_the_poolers(self, tmp_path):
        weights = {n: v for n, v in WEIGHTS.items() if not n.startswith("pooler/")}
        names, _ = self.call(write_tf1_checkpoint(tmp_path / "a.ckpt", weights))
        assert names.keys() == {f"bert/{name}" for name in weights}
        weights = {n: v for n, v in weights.items() if "layer_2" not in n}
        with pytest.raises(CheckpointError, match=r"lacks 16 .*layer_2"):
            self.call(write_tf1_checkpoint(tmp_path / "b.ckpt", weights))

    @pytest.mark.slow
    def test_variables_in_another_scope_are_the_callers_own(self, toy):
        assert self.call(f"{toy}/bert_model.ckpt", scope="tower") == ({}, {})

    def test_no_checkpoint(self, tmp_path):
        with pytest.raises(CheckpointError, match=r"cannot read .*none\.ckpt"):
            self.call(tmp_path / "none.ckpt")
