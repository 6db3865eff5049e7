"""The layers: numbers, training, saving, and strings in a model."""

import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import (
    BertFeatures,
    BertTextInput,
    FeatureExtractor,
    InputExample,
    convert_examples_to_features,
)
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text.vocabulary import read_vocab
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

IDS = ("input_word_ids", "input_mask", "input_type_ids")
S = 9
MEAN = {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]}
LAST = {"name": "last", "layers": [-1]}
TEXTS = ["is this jacksonville ?", "no it is not .", "", "the a b"]

QUESTIONS = """where is the nearest railway station
what time does the museum open on sunday
how much does this old bicycle cost
why did the committee reject our proposal
who wrote the song that played last night
when will the new bridge be finished
which of these two roads leads to the village
how many people live in your town
did you ever visit the northern islands
can anyone explain how this machine works
do they sell fresh bread in the afternoon
is there a doctor on this train
have you seen my blue umbrella
could you tell me your address please
are the shops still open at this hour
what did the teacher say about the exam
where can we rent a small boat
how long does the journey usually take
who is responsible for cleaning the kitchen
why is the sky red in the evening
does your brother still play the piano
would you like another cup of tea
what is the name of that tall tree
when does the next bus leave for the harbour
how do you repair a broken window
which language do they speak in this valley""".splitlines()
STATEMENTS = """the railway station lies behind the market
the museum opens at ten on sunday
this old bicycle costs forty euros
the committee rejected our proposal yesterday
my cousin wrote the song that played last night
the new bridge will be finished in june
both roads lead to the village
about nine thousand people live in our town
we visited the northern islands two years ago
the engineer explained how this machine works
they sell fresh bread every afternoon
a doctor was sitting on the train
your blue umbrella stands behind the door
my address is written on the envelope
the shops close early at this time of year
the teacher praised us after the exam
a fisherman rents small boats near the beach
the journey usually takes three hours
the cook cleans the kitchen every night
the sky turned red in the evening
my brother still plays the piano
she drank another cup of tea
that tall tree is an old chestnut
the next bus leaves for the harbour at noon
the carpenter repaired the broken window
everybody speaks two languages in this valley""".splitlines()


@pytest.fixture(scope="module")
def weights():
    return random_weights(TOY)


@pytest.fixture(scope="module")
def batch():
    return random_batch(TOY, [9, 4, 1], S)


@pytest.fixture(scope="module")
def states(weights, batch):
    """[embeddings, block 0, …] by the NumPy encoder."""
    return NumpyEncoder(TOY, weights)(*(batch[name] for name in IDS))


def key_inputs(length=S):
    return {name: keras.Input((length,), dtype="int32", name=name) for name in IDS}


def strings(*texts):
    return tf.constant(texts, tf.string)


# Numbers.


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
    result = BertFeatures.from_checkpoint(toy, layers=[-1, "embeddings"])(batch)
    assert list(result) == ["layer_output_0", "layer_output_1"]
    np.testing.assert_allclose(result["layer_output_1"], states[0], rtol=0, atol=1e-5)


def test_special_tokens_are_left_out_by_the_ids_of_the_vocabulary(toy):
    layer = BertFeatures.from_checkpoint(toy, [{**MEAN, "special_tokens": False}, LAST])
    text = BertTextInput.from_checkpoint(toy, max_seq_length=8)
    result = layer(text(["the a b"]))  # [CLS] the a b [SEP]
    np.testing.assert_allclose(
        result["mean"], result["last"][:, 1:4].numpy().mean(axis=1), rtol=0, atol=1e-6
    )


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
    with pytest.raises(ConfigError, match="the inputs lack word_indices; they hold input_word_ids"):
        layer(batch)
    word_input = keras.Input((None,), dtype="int32")
    with pytest.raises(ConfigError, match="no fixed length, which w must have"):
        layer({**key_inputs(None), "word_indices": word_input})


# In models.


@pytest.mark.parametrize("length", [S, None])
def test_functional_model(toy, batch, states, length):
    inputs = key_inputs(length)
    outputs = BertFeatures.from_checkpoint(toy, [LAST])(inputs)
    assert outputs["last"].shape == (None, length, TOY.hidden_size)
    result = keras.Model(inputs, outputs).predict(batch, verbose=0)
    np.testing.assert_allclose(result["last"][0], states[3][0], rtol=0, atol=1e-5)


def test_subclassed_model(toy, batch, states):
    class Classifier(keras.Model):
        def __init__(self):
            super().__init__()
            self.bert = BertFeatures.from_checkpoint(toy, [MEAN])
            self.head = keras.layers.Dense(2)

        def call(self, inputs):
            return self.head(self.bert(inputs)["mean"])

    model = Classifier()
    assert model(batch).shape == (3, 2)
    assert len(model.trainable_weights) == 2
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.bert.get_weights()
    model.fit(batch, np.array([0, 1, 0]), verbose=0)
    for old, new in zip(before, model.bert.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


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


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_close_to_float32(minilm_dir, policy):
    text = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=16)
    batch = text(QUESTIONS[:8])
    exact = BertFeatures.from_checkpoint(minilm_dir, [LAST])(batch)["last"].numpy()
    mixed = BertFeatures.from_checkpoint(minilm_dir, [LAST], dtype=policy)(batch)["last"].numpy()
    norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(mixed, axis=-1)
    cosines = (exact * mixed).sum(-1) / norms
    assert cosines[batch["input_mask"] > 0].min() >= 0.999
    assert np.abs(exact - mixed).max() > 1e-4  # it was another arithmetic indeed


# Training.


def test_frozen_or_trainable(toy, batch):
    frozen = BertFeatures.from_checkpoint(toy, [LAST])
    trained = BertFeatures.from_checkpoint(toy, [LAST], trainable=True)
    # 5 of the embeddings; of each block 2 + 2 of attention, 4 of norms, 4 of the two dense layers.
    count = 5 + 3 * 12
    assert (len(frozen.trainable_weights), len(frozen.non_trainable_weights)) == (0, count)
    assert (len(trained.trainable_weights), len(trained.non_trainable_weights)) == (count, 0)
    frozen.trainable = True
    assert len(frozen.trainable_weights) == count


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


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_dropout_keeps_the_arithmetic_narrow(toy, batch, policy):
    layer = BertFeatures.from_checkpoint(toy, [LAST], trainable=True, dtype=policy)
    encoded = layer.encoder(batch, training=True)
    narrow = policy.removeprefix("mixed_")
    assert {state.dtype.name for state in encoded["encoder_outputs"]} == {narrow}


@pytest.mark.slow
def test_a_classifier_learns_questions_from_statements(minilm_dir):
    """Without punctuation, so that the words have to tell; each question has a statement of the
    same topic, and a third of these pairs is held out. A middle layer knows most of syntax.
    """
    text = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=16)
    labels = np.array([1] * len(QUESTIONS) + [0] * len(STATEMENTS))
    held = np.arange(len(labels)) % len(QUESTIONS) % 3 == 0
    all_texts = np.array(QUESTIONS + STATEMENTS)

    def dataset(mask):
        pairs = tf.data.Dataset.from_tensor_slices((all_texts[mask], labels[mask]))
        shuffled = pairs.shuffle(len(labels), seed=0)
        return shuffled.batch(9).map(lambda texts, label: (text(texts), label))

    inputs = key_inputs(16)
    features = BertFeatures.from_checkpoint(minilm_dir, [{**MEAN, "layers": [-4]}])(inputs)["mean"]
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(features))
    keras.utils.set_random_seed(0)
    model.compile(
        keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"], jit_compile=False
    )
    _, before = model.evaluate(dataset(held), verbose=0)
    model.fit(dataset(~held), epochs=8, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(dataset(held), verbose=0)
    print(f"held-out accuracy: {before:.2f} before, {accuracy:.2f} after")
    assert accuracy >= 0.85


# Saving.


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


# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_keras_file_needs_neither_checkpoint_nor_vocabulary(toy, tmp_path):
    path, texts = tmp_path / "model.keras", ["is this jacksonville ?", "the a b"]
    gone = shutil.copytree(toy, tmp_path / "uncased_gone")
    text = BertTextInput.from_checkpoint(gone, max_seq_length=12, tokens_lost=True)
    bert = BertFeatures.from_checkpoint(gone, [MEAN, LAST])
    inputs = keras.Input((), dtype="string")
    ids = text(inputs)
    features = bert({name: ids[name] for name in IDS})
    head = keras.layers.Dense(2)(features["mean"])
    model = keras.Model(inputs, {**features, "head": head, "lost": ids["tokens_lost"]})
    model.save(path)
    expected = model.predict(strings(*texts), verbose=0)
    np.savez(tmp_path / "expected.npz", **expected)
    shutil.rmtree(gone)
    script = (
        "import sys, numpy as np, tensorflow as tf, keras, bert_features\n"
        "bert_features.BertFeatures\n"
        f"model = keras.models.load_model({str(path)!r})\n"
        f"result = model.predict(tf.constant({texts!r}), verbose=0)\n"
        f"expected = np.load({str(tmp_path / 'expected.npz')!r})\n"
        "assert result.keys() == set(expected.files), result.keys()\n"
        "for name in expected.files:\n"
        "    np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=1e-6)\n"
        "bert = next(l for l in model.layers if isinstance(l, bert_features.BertFeatures))\n"
        "assert not bert.trainable_weights\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# Strings.

TRICKY = [
    "Hello, World! It's a naïve café…",
    "ΟΔΥΣΣΕΥΣ και Σίσυφος",
    "中文和 English mixed",
    "don't stop   \t now\n",
    "\u200bzero\u00adwidth \x00 control",
    "a" * 250 + " after an over-long word",
    "[CLS] typed [SEP] specials [MASK]",
    "",
    "   ",
    "unaffable embeddings " * 30,
    "Été à l'Île ﬁn ½ ²",
]


def features_of(tokenizer, pairs, length):
    examples = [InputExample(i, a, b) for i, (a, b) in enumerate(pairs)]
    features = convert_examples_to_features(examples, length, tokenizer)
    return {
        "input_word_ids": [f.input_ids for f in features],
        "input_mask": [f.input_mask for f in features],
        "input_type_ids": [f.input_type_ids for f in features],
        "tokens_lost": [f.tokens_lost for f in features],
    }


@pytest.mark.parametrize("length", [3, 4, 16, 64])
def test_text_input_equals_the_official_conversion(minilm_dir, length):
    layer = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=length, tokens_lost=True)
    pairs = [(a, b) for a in TRICKY for b in TRICKY]
    result = layer((strings(*(a for a, _ in pairs)), strings(*(b for _, b in pairs))))
    expected = features_of(layer.tokenizer, pairs, length)
    assert result.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(result[name], column, err_msg=name)
        assert result[name].dtype == tf.int32
    alone = layer(strings(*TRICKY, *QUESTIONS))
    for name, column in features_of(
        layer.tokenizer, [(a, None) for a in [*TRICKY, *QUESTIONS]], length
    ).items():
        np.testing.assert_array_equal(alone[name], column, err_msg=name)


def test_text_input_takes_texts_in_many_forms(toy):
    layer = BertTextInput.from_checkpoint(toy, max_seq_length=8)
    expected = layer(strings(*TEXTS))
    assert {name: tuple(v.shape) for name, v in expected.items()} == dict.fromkeys(IDS, (4, 8))
    row = [TOY_VOCAB.index(t) for t in ["[CLS]", "the", "a", "b", "[SEP]"]]
    np.testing.assert_array_equal(expected["input_word_ids"][3], [*row, 0, 0, 0])
    for form in (TEXTS, np.array(TEXTS), np.array(TEXTS, object), {"text_a": strings(*TEXTS)}):
        np.testing.assert_array_equal(layer(form)["input_word_ids"], expected["input_word_ids"])
    single = layer("the a b")
    np.testing.assert_array_equal(single["input_word_ids"], expected["input_word_ids"][3])
    pair = layer((["a"], ["b"]))
    np.testing.assert_array_equal(pair["input_type_ids"], [[0, 0, 0, 1, 1, 0, 0, 0]])
    named = layer({"text_a": ["a"], "text_b": ["b"]})
    np.testing.assert_array_equal(named["input_word_ids"], pair["input_word_ids"])
    assert layer(tf.constant([], tf.string))["input_mask"].shape == (0, 8)


def test_text_input_in_tf_data(toy):
    layer = BertTextInput.from_checkpoint(toy, max_seq_length=8)
    batches = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4).map(layer)
    assert {s.shape.as_list()[1] for s in batches.element_spec.values()} == {8}
    (rows,) = batches
    singles = tf.data.Dataset.from_tensor_slices(TEXTS).map(layer).batch(4)
    for name, column in layer(TEXTS).items():
        np.testing.assert_array_equal(rows[name], column)
        np.testing.assert_array_equal(next(iter(singles))[name], column)


def test_text_input_from_its_config(toy):
    layer = BertTextInput.from_checkpoint(toy, max_seq_length=8, tokens_lost=True)
    config = json.loads(json.dumps(layer.get_config()))
    assert config["vocabulary"] == TOY_VOCAB
    assert (config["do_lower_case"], config["max_seq_length"]) == (True, 8)
    copy = BertTextInput.from_config(config)
    assert copy.get_config() == config
    np.testing.assert_array_equal(copy(["THE A b"])["input_word_ids"], layer(["the a b"])[IDS[0]])
    assert not layer.weights


def test_strings_in_vectors_out(minilm_dir, one_device):
    output = {**MEAN, "normalize": True}
    texts = [*QUESTIONS[:4], "naïve … café"]
    inputs = keras.Input((), dtype="string")
    ids = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=32)(inputs)
    model = keras.Model(inputs, BertFeatures.from_checkpoint(minilm_dir, [output])(ids))
    result = model.predict(strings(*texts), verbose=0)["mean"]
    extractor = FeatureExtractor.from_checkpoint(
        minilm_dir, outputs=[output], max_seq_length=32, device="cpu"
    )
    expected = [record.features["mean"] for record in extractor(texts)]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


# What is refused.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": [3]}, r"layer 3 is outside \[-3, 2\]: this checkpoint has 3 layers"),
        ({"layers": ["last"]}, "layer 'last' is neither a number nor the word 'embeddings'"),
        ({"outputs": [{"level": "sequence", "pooling": "middle"}]}, "pooling is 'middle'; allowed"),
        ({"outputs": [{"lairs": [1]}]}, r"outputs\[0\]: unknown setting 'lairs'; did you mean"),
        ({"outputs": []}, r"outputs is \[\]; allowed: a list of dicts"),
        ({"outputs": LAST}, "allowed: a list of dicts"),
        ({"outputs": [{**MEAN, "special_tokens": False}]}, "output 'mean' leaves out"),
        ({"outputs": [LAST, LAST]}, "two outputs are named 'last'"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        BertFeatures(TOY, **settings)


def test_checkpoints_that_are_refused(tmp_path):
    bare = {n: w for n, w in random_weights(TOY).items() if not n.startswith("pooler")}
    folder = write_directory(tmp_path / "toy", TOY, TOY_VOCAB, bare, kind="tf1")
    with pytest.raises(CheckpointError, match="has no pooler"):
        BertFeatures.from_checkpoint(folder, [{"level": "sequence", "pooling": "pooler"}])
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        BertFeatures.from_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="vocab_size is missing"):
        BertFeatures({"hidden_size": 8})
    with pytest.raises(ConfigError, match=r"max_seq_length is 25; .* has 24 positions"):
        BertTextInput.from_checkpoint(folder, do_lower_case=True, max_seq_length=25)


def wide(name, length):
    return {n: np.ones((2, length if n == name else S), np.int32) for n in IDS}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({n: np.ones((2, S), np.int32) for n in IDS[:2]}, "the inputs lack input_type_ids"),
        ({n: np.ones((2, S), np.float32) for n in IDS}, "input_word_ids is float32; allowed: int"),
        ({n: np.ones((2,), np.int32) for n in IDS}, r"input_word_ids has the shape \(2,\)"),
        ({n: np.ones((2, 25), np.int32) for n in IDS}, "have 25 tokens; this model has 24"),
        (np.ones((2, S), np.int32), "allowed: a dict of input_word_ids"),
    ],
)
def test_inputs_that_are_refused(inputs, message):
    layer = BertFeatures(TOY, [LAST])
    with pytest.raises(ConfigError, match=message):
        layer(inputs)


def test_float_inputs_are_refused_when_the_model_is_made():
    with pytest.raises(ConfigError, match=r"keras.Input\(\(S,\), dtype='int32'"):
        BertFeatures(TOY, [LAST])({name: keras.Input((S,)) for name in IDS})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text": ["a"]}, "the inputs hold text; allowed: text_a, text_b"),
        ((["a"], ["b"], ["c"]), "the inputs are 3 texts"),
        (np.array([["a", "b"]]), r"shapes \(1, 2\)"),
    ],
)
def test_texts_that_are_refused(inputs, message):
    layer = BertTextInput(TOY_VOCAB, max_seq_length=8)
    with pytest.raises(ConfigError, match=message):
        layer(inputs)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"max_seq_length": 2}, ConfigError, "max_seq_length is 2; allowed: an integer of at"),
        ({"vocabulary": ["[UNK]", "[CLS]", "a"]}, ConfigError, r"lacks \[SEP\]"),
        ({"vocabulary": "nowhere.txt"}, CheckpointError, "cannot read the vocabulary nowhere.txt"),
    ],
)
def test_text_settings_that_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        BertTextInput(**{"vocabulary": TOY_VOCAB, **settings})


def test_a_vocabulary_may_be_a_file(minilm_dir):
    path = minilm_dir / "vocab.txt"
    assert BertTextInput(path).get_config()["vocabulary"] == read_vocab(path)
