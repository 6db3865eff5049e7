"""BertFeatures: numbers, training, its config, and what it refuses."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertEncoder, BertFeatures
from bert_features.config.outputs import OUTPUT_SETTINGS
from bert_features.errors import ConfigError
from tests.layers import training
from tests.other_values import ALONE, OTHERS
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

IDS = ("input_word_ids", "input_mask", "input_type_ids")
S = 9
MEAN = {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]}
LAST = {"name": "last", "layers": [-1]}


def key_inputs(length=S):
    return {name: keras.Input((length,), dtype="int32", name=name) for name in IDS}


def test_outputs_equal_the_numpy_reference(toy, weights, batch, states):
    outputs = [
        {"name": "tokens", "layers": [-1, 0, "embeddings"]},
        {"name": "sum", "layers": [-1, -2], "combine": "sum"},
        MEAN,
        {"name": "pooled", "level": "sequence", "pooling": "pooler"},
    ]
    result = BertFeatures.from_checkpoint(toy, outputs)(batch)
    mask = batch["input_mask"][:, :, None]
    expected = {
        "tokens_0": states[3],
        "tokens_1": states[1],
        "tokens_2": states[0],
        "sum": states[3] + states[2],
        "mean": (states[3] * mask).sum(1) / mask.sum(1),
        "pooled": NumpyEncoder(TOY, weights).pooled(states[3]),
    }
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert result[name].dtype == tf.float32
        # Masked positions differ: there the reference is exact where BERT adds -10000.
        real = mask > 0 if value.ndim == 3 else True
        np.testing.assert_allclose(
            np.where(real, result[name], 0), np.where(real, value, 0), rtol=0, atol=1e-5
        )


def test_without_outputs_each_layer_is_one(toy, batch, states):
    assert BertFeatures.from_checkpoint(toy, layers=-1).output_specs[0].layers == (-1,)
    result = BertFeatures.from_checkpoint(toy, layers="-1,embeddings")(batch)
    assert list(result) == ["layer_output_0", "layer_output_1"]
    np.testing.assert_allclose(result["layer_output_1"], states[0], rtol=0, atol=1e-5)


def test_auto_pooling_is_settled_when_the_layer_is_made(tmp_path, weights, batch, states):
    folder = write_directory(tmp_path / "t", TOY, TOY_VOCAB, weights)
    write_settings(folder, modes=["cls", "mean"], normalize=True)
    layer = BertFeatures.from_checkpoint(
        folder, [{"name": "s", "level": "sequence", "pooling": "auto"}], hidden_act="gelu_tanh"
    )
    mask = batch["input_mask"][:, :, None]
    both = [states[3][:, 0], (states[3] * mask).sum(1) / mask.sum(1)]
    wanted = np.concatenate(both, axis=1)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(layer(batch)["s"], wanted, rtol=0, atol=1e-5)
    # A copy from its config has no folder to ask.
    copy = BertFeatures.from_config(layer.get_config())
    assert copy.output_specs == layer.output_specs


def test_what_auto_does_to_texts_is_a_warning(tmp_path, weights, caplog):
    folder = write_directory(tmp_path / "toy-cased", TOY, TOY_VOCAB, weights)
    prompts = {"prompts": {"q": "this is "}, "default_prompt_name": "q"}
    write_settings(folder, do_lower_case=True, **prompts)
    BertFeatures.from_checkpoint(folder, [MEAN])
    assert not caplog.records
    BertFeatures.from_checkpoint(folder, [{"level": "sequence", "pooling": "auto"}])
    (record,) = caplog.records
    changes = "puts the prompt 'this is ' before each text and lower-cases each text but keeps its"
    assert f"pooling 'auto' {changes} accents; this layer takes ids" in record.getMessage()


def test_words_need_their_indices(toy, batch, states):
    layer = BertFeatures.from_checkpoint(
        toy, [{"name": "w", "level": "word", "pooling": "mean", "layers": [-1]}]
    )
    indices = np.full((3, S), -1, np.int32)
    indices[0, 1:5] = [0, 1, 1, 2]
    words = layer({**batch, "word_indices": indices})["w"]
    assert words.shape == (3, S, TOY.hidden_size)
    expected = [states[3][0, 1], states[3][0, 2:4].mean(0), states[3][0, 4]]
    np.testing.assert_allclose(words[0, :3], expected, rtol=0, atol=1e-5)
    assert not np.any(words[0, 3:])
    with pytest.raises(ConfigError, match="lack word_indices"):
        layer(batch)
    word_input = keras.Input((None,), dtype="int32")
    with pytest.raises(ConfigError, match="no fixed length"):
        layer({**key_inputs(None), "word_indices": word_input})


@pytest.mark.parametrize("length", [S, None])
def test_functional_model(toy, batch, states, length):
    inputs = key_inputs(length)
    outputs = BertFeatures.from_checkpoint(toy, [LAST])(inputs)
    assert outputs["last"].shape == (None, length, TOY.hidden_size)
    result = keras.Model(inputs, outputs).predict(batch, verbose=0)
    np.testing.assert_allclose(result["last"][0], states[3][0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_specs_are_what_comes_out(toy, batch, policy):
    outputs = [
        MEAN,
        {**LAST, "dtype": "float16"},
        {"name": "two", "layers": [0, 1], "combine": "concat", "dtype": "bfloat16"},
        {"name": "pooled", "level": "sequence", "pooling": "pooler", "dim": 3},
    ]
    layer = BertFeatures.from_checkpoint(toy, outputs, dtype=policy)
    spec = layer.compute_output_spec(batch)
    result = layer(batch)
    assert spec.keys() == result.keys()
    for name, value in result.items():
        assert spec[name].shape == tuple(value.shape)
        assert spec[name].dtype == value.dtype.name
    assert result["mean"].dtype == tf.float32
    assert {w.dtype for w in layer.weights} == {"float32"}


def test_frozen_or_trainable(toy, batch):
    frozen = BertFeatures.from_checkpoint(toy, [LAST])
    trained = BertFeatures.from_checkpoint(toy, [LAST], trainable=True)
    # 5 of the embeddings; of each block 2 + 2 of attention, 4 of norms, 4 of the two dense layers.
    count = 5 + 3 * 12
    assert (len(frozen.trainable_weights), len(frozen.non_trainable_weights)) == (0, count)
    assert (len(trained.trainable_weights), len(trained.non_trainable_weights)) == (count, 0)
    frozen.trainable = True
    assert len(frozen.trainable_weights) == count


@pytest.mark.parametrize(
    ("trainable", "trained", "count"),
    [
        (True, True, 43),
        (2, ["layer_1", "layer_2", "pooler"], 26),
        ("layer_1/attention", ["layer_1/attention"], 4),
        (["layer_2", "embeddings/layer_norm"], ["embeddings/layer_norm", "layer_2"], 14),
    ],
)
def test_what_is_trained_is_in_the_config(trainable, trained, count):
    layer = BertFeatures(TOY, level="sequence", pooling="pooler", trainable=trainable)
    assert (layer.trained(), len(layer.trainable_weights)) == (trained, count)
    copy = BertFeatures.from_config(json.loads(json.dumps(layer.get_config())))
    paths = [[w.path for w in each.trainable_weights] for each in (layer, copy)]
    assert paths[0] == paths[1]
    assert copy.get_config() == layer.get_config()


def test_blocks_frozen_and_unfrozen_one_by_one(batch):
    layers = [-1, 1, 0, "embeddings"]
    layer = BertFeatures(TOY, layers=layers, trainable=True)
    layer.encoder.blocks[1].trainable = False
    assert layer.trained() == ["embeddings", "layer_0", "layer_2"]
    layer.trainable = False
    assert repr(layer).startswith(f"<BertFeatures {layer.name}, frozen: layer_output_0 float32")
    layer.encoder.blocks[2].trainable = True
    assert f"{layer.name}, training layer_2: " in repr(layer)
    assert len(layer.trainable_weights) == len(layer.encoder.trainable_weights) == 12
    copy = keras.models.clone_model(keras.Sequential([layer])).layers[0]
    assert copy.trained() == layer.trained() == ["layer_2"]
    plain, dropped = (layer(batch, training=training) for training in (False, True))
    differ = [np.any(plain[name] != dropped[name]) for name in plain]
    assert differ == [True, False, False, False]  # dropout is in what is trained


@pytest.mark.slow
def test_gradient_flows_to_every_weight_when_trainable(toy, batch):
    layer = BertFeatures.from_checkpoint(toy, [MEAN], trainable=True)
    with tf.GradientTape() as tape:
        # Not the plain sum, which a layer norm keeps constant.
        loss = tf.reduce_sum(layer(batch, training=True)["mean"] ** 3)
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert all(g is not None for g in gradients)
    flows = {
        v.path: np.any(tf.convert_to_tensor(g))
        for v, g in zip(layer.trainable_variables, gradients, strict=True)
    }
    assert all(flows.values()), flows


def test_dropout_is_of_training_alone(toy, batch):
    def of(layer, training):
        return layer(batch, training=training)["last"].numpy()

    trained = BertFeatures.from_checkpoint(toy, [LAST], trainable=True)
    plain = of(trained, False)
    assert np.abs(of(trained, True) - plain).max() > 1e-3
    assert np.abs(of(trained, True) - of(trained, True)).max() > 1e-3
    np.testing.assert_array_equal(of(trained, False), plain)
    frozen = BertFeatures.from_checkpoint(toy, [LAST])
    np.testing.assert_array_equal(of(frozen, True), plain)
    without = BertFeatures.from_checkpoint(toy, [LAST], trainable=True, use_dropout=False)
    np.testing.assert_array_equal(of(without, True), plain)


@pytest.mark.parametrize("policy", ["bfloat16", "float16"])
def test_training_weights_of_16_bits_is_a_warning(batch, caplog, policy):
    for dtype in (f"mixed_{policy}", policy):
        layer = BertFeatures(TOY, [LAST], dtype=dtype, trainable=1)
        for trains in (False, True, True):
            layer(batch, training=trains)
    (record,) = caplog.records
    assert f"trains weights in {policy}" in record.getMessage()
    assert f"pass dtype='mixed_{policy}'" in record.getMessage()


def test_default_names_are_numbered():
    first, second = BertFeatures(TOY, [LAST]), BertFeatures(TOY, [LAST])
    ids = key_inputs()
    model = keras.Model(ids, [first(ids)["last"], second(ids)["last"]])
    assert first.name != second.name
    assert len({weight.path for weight in model.weights}) == len(model.weights)
    encoders = [BertEncoder(TOY) for _ in range(2)]
    assert not {w.path for w in encoders[0].weights} & {w.path for w in encoders[1].weights}


def test_the_usual_names_leave_norms_and_biases_without_weight_decay():
    layer = BertFeatures(TOY, [LAST], trainable=True)
    layer.set_weights([np.ones(weight.shape) for weight in layer.weights])
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["LayerNorm", "layer_norm", "bias"])
    optimizer.apply([np.zeros(w.shape, np.float32) for w in layer.weights], layer.weights)
    decayed = {weight.name for weight in layer.weights if np.any(weight.numpy() != 1)}
    tables = {f"{kind}_embeddings" for kind in ("word", "position", "token_type")}
    assert decayed == {"kernel", *tables}
    embeddings = [w for w in layer.weights if "/embeddings/" in w.path]
    assert len(embeddings) == 5  # the norm is among them


def test_the_config_is_complete(toy, batch):
    outputs = [
        {"name": "w", "layers": [-1, -2], "combine": "weighted", "weights": [0.5, 2.0]},
        {**MEAN, "special_tokens": False, "normalize": True},
    ]
    layer = BertFeatures.from_checkpoint(
        toy, outputs, trainable=True, use_dropout=False, dtype="mixed_bfloat16", name="mine"
    )
    config = json.loads(json.dumps(layer.get_config()))  # nothing in it but JSON
    copy = BertFeatures.from_config(config)
    assert copy.get_config() == config == layer.get_config()
    assert copy.output_specs == layer.output_specs
    assert (copy.name, copy.trainable, copy.use_dropout) == ("mine", True, False)
    assert copy.special_ids == (2, 3)
    assert float(tf.math.reduce_std(copy.encoder.embeddings.words)) > 0  # fresh, but not zeros
    copy.set_weights(layer.get_weights())
    for name, value in layer(batch).items():
        np.testing.assert_array_equal(copy(batch)[name], value)


NOT_OF_LAYERS = {"kind", "heads", "top_k", "min_weight", "scale_from"}


@pytest.mark.parametrize("name", sorted({*OUTPUT_SETTINGS} - NOT_OF_LAYERS))
def test_each_setting_of_an_output_comes_back_with_a_saved_layer(name):
    specs = []
    for values in (ALONE[name], OTHERS[name]):
        layers = {} if name == "layers" and values else {"layers": (-1, -2)}
        layer = BertFeatures(TOY, [{"name": "x", **layers, **values}], special_ids=(2, 3))
        config = json.loads(json.dumps(layer.get_config()))
        assert BertFeatures.from_config(config).output_specs == layer.output_specs
        specs.append(layer.output_specs)
    assert specs[0] != specs[1]


def test_the_settings_of_a_single_output_may_be_arguments(toy, batch, states):
    layer = BertFeatures.from_checkpoint(toy, level="sequence", pooling="max", layers=-2)
    real = batch["input_mask"][..., None] == 1
    wanted = np.where(real, states[-2], -np.inf).max(axis=1)
    for each in (layer, BertFeatures.from_config(layer.get_config())):
        each.set_weights(layer.get_weights())
        np.testing.assert_allclose(each(batch)["features"], wanted, rtol=0, atol=1e-5)


def test_the_last_of_two_equal_special_pieces_counts(tmp_path):
    vocab = [*TOY_VOCAB[:-1], "[SEP]"]
    folder = write_directory(tmp_path / "toy", TOY, vocab, random_weights(TOY), kind="tf1")
    layer = BertFeatures.from_checkpoint(folder, [MEAN])
    assert layer.special_ids == (2, len(vocab) - 1)  # as the tokenizer has it


def test_word_and_span_inputs_are_checked_too(batch):
    layer = BertFeatures(TOY, level="span", pooling="mean", layers=-1)
    bounds = {"span_begins": np.full((3, S), -1, np.int32), "span_ends": np.full((3, S), 9)}
    assert layer({**batch, **bounds})["features"].shape == (3, S, TOY.hidden_size)
    with pytest.raises(ConfigError, match=r"span_ends has 10; .* 9"):
        layer({**batch, **bounds, "span_ends": bounds["span_ends"] + 1})


@pytest.mark.parametrize("batch_size", [0, 2])
def test_every_number_of_rows_comes_out(batch, batch_size):
    outputs = [LAST, {**MEAN, "pooling": "max"}, {**MEAN, "pooling": "last", "name": "end"}]
    result = BertFeatures(TOY, outputs)({name: ids[:batch_size] for name, ids in batch.items()})
    assert {len(values) for values in result.values()} == {batch_size}


def test_shapes_that_only_the_device_knows_must_be_equal(batch):
    layer = BertFeatures(TOY, [MEAN])
    unknown = tf.TensorSpec([None, None], tf.int32)
    run = tf.function(layer, autograph=False, input_signature=[dict.fromkeys(IDS, unknown)])
    np.testing.assert_allclose(run(batch)["mean"], layer(batch)["mean"], rtol=0, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ncompatible shapes"):
        run({**batch, "input_mask": batch["input_mask"].T})


def test_keras_layers_behind_count_what_a_row_has(batch):
    """Tokens, words and spans; the mean of each is that of NumPy, at any length of padding."""
    levels = {"token": {}, "word": {"pooling": "sum"}, "span": {"pooling": "first"}}
    outputs = [{"name": n, "level": n, "layers": [-1], **each} for n, each in levels.items()]
    layer = BertFeatures(TOY, outputs)
    given = {
        **batch,
        "word_indices": np.where(batch["input_mask"] > 0, np.arange(S) // 2, -1).astype(np.int32),
        "span_begins": np.where(np.arange(S) < [[2], [1], [1]], 0, -1).astype(np.int32),
        "span_ends": np.where(np.arange(S) < [[2], [1], [1]], 1, -1).astype(np.int32),
    }
    real = [(9, 4, 1), (5, 2, 1), (2, 1, 1)]
    ids = {name: keras.Input((S,), dtype="int32", name=name) for name in given}
    means = {n: keras.layers.GlobalAveragePooling1D()(v) for n, v in layer(ids).items()}
    found, values = keras.Model(ids, means).predict(given, verbose=0), layer(given)
    for name, counts in zip(levels, real, strict=True):
        wanted = [
            row[:count].mean(0) for row, count in zip(values[name].numpy(), counts, strict=True)
        ]
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-6, err_msg=name)


def test_the_gradient_of_a_mean_of_keras_is_a_number_where_a_row_is_empty(batch):
    """Keras divides by the number of units that the mask has."""
    layer = BertFeatures(TOY, [LAST, {**MEAN, "name": "w", "level": "word"}], trainable=True)
    indices = np.array([[0, 1] + [-1] * 7, [-1] * S, [-1] * S], np.int32)
    given = {**batch, "input_mask": batch["input_mask"] * [[1], [1], [0]], "word_indices": indices}
    with tf.GradientTape() as tape:
        means = [keras.layers.GlobalAveragePooling1D()(each) for each in layer(given).values()]
        loss = tf.reduce_sum(tf.concat(means, axis=1) ** 3)
    assert not np.any(means[1][1:])  # of no word
    for gradient in tape.gradient(loss, [weight.value for weight in layer.trainable_weights]):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("length", [S, None])
def test_a_row_without_words_or_tokens_counts_once_in_the_loss(batch, length):
    """Not as often as it is long: a row that only fills the batch up would outweigh the others."""
    bert = BertFeatures(TOY, layers="embeddings")
    given = {**batch, "input_mask": batch["input_mask"] * [[1], [1], [0]]}
    ids = {name: keras.Input((length,), dtype="int32", name=name) for name in bert.input_names}
    (tokens,) = bert(ids).values()
    model = keras.Model(ids, tokens)
    model.compile(loss="mse", run_eagerly=True)
    counted = (np.arange(S) < [[9], [4], [1]])[..., None]
    labels = np.broadcast_to(np.where(counted, 0.0, 9.0), (3, S, TOY.hidden_size))
    wanted = np.square(model(given)).mean(-1)[counted[..., 0]].mean()
    assert float(model.test_on_batch(given, labels)) == pytest.approx(wanted, rel=1e-5)


def test_keras_layers_behind_the_encoder_count_tokens(batch):
    encoded = BertEncoder(TOY, with_pooler=True)(batch, attention_of=(1, 3))
    for states in (encoded["sequence_output"], encoded["encoder_outputs"][1]):
        found = keras.layers.GlobalAveragePooling1D()(states)
        for mean, row, length in zip(found, states.numpy(), (9, 4, 1), strict=True):
            np.testing.assert_allclose(mean, row[:length].mean(0), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_six_steps_of_adamw_are_those_of_torch():
    """Tokens repeat in its batches; a sparse gradient would move them three times as far."""
    for found, wanted in training.six_steps():
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layer_0", "mine"])
def test_rematerialised_layers_drop_the_same_values_again(name):
    (loss, kernel), wanted = training.recomputed([name]), training.recomputed()
    assert loss == pytest.approx(wanted[0], abs=1e-6)
    np.testing.assert_allclose(kernel, wanted[1], rtol=0, atol=1e-7)
