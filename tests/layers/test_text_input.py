"""BertTextInput: rows as the official script makes them, forms of input, and what it refuses."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertTextInput, InputExample, convert_examples_to_features
from bert_features.errors import ConfigError
from bert_features.text.vocabulary import read_vocab
from tests.layers.sentences import QUESTIONS
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

IDS = ("input_word_ids", "input_mask", "input_type_ids")
TEXTS = ["is this jacksonville ?", "no it is not .", "", "the a b"]
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


def strings(*texts):
    return tf.constant(texts, tf.string)


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


@pytest.mark.parametrize(("recorded", "length"), [(6, 6), (None, 24), (512, 24)])
def test_the_length_is_by_default_that_of_sentence_transformers(tmp_path, recorded, length):
    folder = write_directory(tmp_path / "toy-uncased", TOY, TOY_VOCAB, random_weights(TOY))
    write_settings(folder, length=recorded)
    assert BertTextInput.from_checkpoint(folder).max_seq_length == length
    assert BertTextInput.from_checkpoint(folder, max_seq_length=9).max_seq_length == 9


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


@pytest.mark.slow
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


def test_a_vocabulary_may_be_a_file(minilm_dir):
    path = minilm_dir / "vocab.txt"
    assert BertTextInput(path).get_config()["vocabulary"] == read_vocab(path)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text": ["a"]}, "the inputs hold text"),
        ((["a"], ["b"], ["c"]), "the inputs are 3 texts"),
        (np.array([["a", "b"]]), r"shapes \(1, 2\)"),
    ],
)
def test_texts_that_are_refused(inputs, message):
    layer = BertTextInput(TOY_VOCAB, max_seq_length=8)
    with pytest.raises(ConfigError, match=message):
        layer(inputs)
