"""InputFeatures: the official layout, and the official input_fn over them."""

import pickle

import numpy as np
import pandas
import pytest

from bert_features.errors import ConfigError
from bert_features.official import tf1 as tf
from bert_features.official import tokenization
from bert_features.official.features import convert_examples_to_features
from bert_features.official.input_fn import input_fn_builder
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def test_the_worked_example_of_the_official_script(tokenizer):
    example = InputExample(7, "is this jacksonville ?", "no it is not .")
    (features,) = convert_examples_to_features([example], 16, tokenizer)
    row = "[CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]"
    words = row.split()
    assert features.unique_id == 7
    assert features.tokens == words
    assert features.input_ids == [TOY_VOCAB.index(word) for word in words] + [0, 0]
    assert features.input_mask == [1] * 14 + [0, 0]
    assert features.input_type_ids == [0] * 8 + [1] * 6 + [0, 0]
    assert features.tokens_lost == 0


@pytest.mark.parametrize(
    ("text_a", "text_b", "tokens", "lost"),
    [
        ("a b a b a b", None, "[CLS] a b a b [SEP]", 2),
        ("a a a a", "b b", "[CLS] a a [SEP] b [SEP]", 3),
        ("a", "b b b", "[CLS] a [SEP] b b [SEP]", 1),
        ("a b", "\u200b", "[CLS] a b [SEP]", 0),  # a text_b without a piece counts as none
        ("", None, "[CLS] [SEP]", 0),
    ],
)
def test_rows(tokenizer, text_a, text_b, tokens, lost):
    (features,) = convert_examples_to_features([InputExample(0, text_a, text_b)], 6, tokenizer)
    assert features.tokens == tokens.split()
    assert features.tokens_lost == lost
    assert sum(features.input_mask) == len(features.tokens)


def test_input_fn_of_features_in_memory(tokenizer):
    examples = [InputExample(i, text) for i, text in enumerate(["is this jack", "the a", "", "no"])]
    features = convert_examples_to_features(examples, 10, tokenizer)
    batches = list(input_fn_builder(features, 10)({"batch_size": 3}))
    assert [batch["unique_ids"].numpy().tolist() for batch in batches] == [[0, 1, 2], [3]]
    rows = [row for batch in batches for row in batch["input_ids"].numpy().tolist()]
    assert rows == [f.input_ids for f in features]
    with pytest.raises(ConfigError, match="10 long; seq_length"):
        input_fn_builder(features, 12)


@pytest.mark.parametrize("unique_id", [np.int64(3), np.uint8(3), pandas.Series([3])[0], True])
def test_ids_are_any_integers(tokenizer, unique_id):
    features = convert_examples_to_features([InputExample(unique_id, "a")], 6, tokenizer)
    (batch,) = input_fn_builder(features, 6)({"batch_size": 3})
    assert batch["unique_ids"].dtype == tf.int64
    assert batch["unique_ids"].numpy().tolist() == [int(unique_id)]


@pytest.mark.parametrize("unique_id", [np.int64(-1), np.float64(3), "3"])
def test_ids_that_are_none(tokenizer, unique_id):
    features = convert_examples_to_features([InputExample(unique_id, "a")], 6, tokenizer)
    with pytest.raises(ConfigError, match="the id of an example is"):
        input_fn_builder(features, 6)


class Letters(tokenization.FullTokenizer):
    def tokenize(self, text):
        return list(text.replace(" ", ""))


class GraphOfLetters(FullTokenizer):
    tokenize = Letters.tokenize


class Blanks:
    """An own class; `"".split(" ")` has a piece, so it must not be asked for a missing text_b."""

    def tokenize(self, text):
        return text.split(" ")

    def convert_tokens_to_ids(self, tokens):
        return [len(token) for token in tokens]


class Unsplit(tokenization.BasicTokenizer):
    def _run_split_on_punc(self, text):
        return [text]


def own_parts(t):
    t.basic_tokenizer = Unsplit()
    t.vocab = {**t.vocab, "is?": 9}
    t.wordpiece_tokenizer = tokenization.WordpieceTokenizer(t.vocab, unk_token="no")


def own_rules(t):
    t.basic_tokenizer._clean_text = lambda text: text.replace("-", "")
    t.basic_tokenizer._is_chinese_char = lambda cp: cp == ord("s")


def letters(t):
    t.tokenize = Letters.tokenize.__get__(t)


CHANGES = [
    (lambda t: setattr(t.basic_tokenizer, "do_lower_case", False), "IS is", "[UNK] is"),
    (lambda t: setattr(t.basic_tokenizer, "tokenize", str.split), "is a?", "is [UNK]"),
    (
        lambda t: setattr(t.wordpiece_tokenizer, "max_input_chars_per_word", 3),
        "is this",
        "is [UNK]",
    ),
    (lambda t: setattr(t.wordpiece_tokenizer, "tokenize", list), "ab", "a b"),
    (lambda t: t.vocab.update(ab=3), "ab a", "ab a"),
    (own_parts, "is? its", "is? no"),
    (own_rules, "i-s-a b", "[UNK] [UNK] a b"),
    (letters, "a b", "a b"),
    (letters, "ab", "a b"),
]


@pytest.mark.parametrize(("change", "text", "tokens"), CHANGES)
def test_a_changed_tokenizer_is_asked(toy, change, text, tokens):
    tokenizer = tokenization.FullTokenizer(f"{toy}/vocab.txt")
    convert_examples_to_features([], 8, tokenizer)
    change(tokenizer)
    wanted = ["[CLS]", *tokens.split(), "[SEP]"]
    assert tokenizer.tokenize(text) == wanted[1:-1]
    (features,) = convert_examples_to_features([InputExample(0, text)], 8, tokenizer)
    assert features.tokens == wanted
    assert features.input_ids[: len(wanted)] == [tokenizer.vocab[token] for token in wanted]


@pytest.mark.parametrize("patched", ["module", "class"])
def test_changed_functions_are_asked(toy, monkeypatch, patched):
    tokenizer = tokenization.FullTokenizer(f"{toy}/vocab.txt")
    assert tokenizer.tokenize("is?") == ["is", "?"]
    if patched == "module":
        monkeypatch.setattr(tokenization, "_is_punctuation", lambda char: False)
    else:
        monkeypatch.setattr(tokenization.BasicTokenizer, "tokenize", lambda self, text: [text])
    (features,) = convert_examples_to_features([InputExample(0, "is?")], 8, tokenizer)
    assert features.tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_a_class_of_a_program(toy):
    tokenizers = Letters(f"{toy}/vocab.txt"), GraphOfLetters(TOY_VOCAB)
    for tokenizer in tokenizers:
        example = InputExample(0, "a b", "ba")
        (features,) = convert_examples_to_features([example], 9, tokenizer)
        assert features.tokens == ["[CLS]", "a", "b", "[SEP]", "b", "a", "[SEP]"]
        assert features.input_ids == [2, 16, 17, 3, 17, 16, 3, 0, 0]
    (features,) = convert_examples_to_features([InputExample(0, "a bank", "")], 6, Blanks())
    assert features.tokens == ["[CLS]", "a", "bank", "[SEP]"]
    assert features.input_ids == [5, 1, 4, 5, 0, 0]


def test_tokenizers_within_a_graph(toy, tokenizer):
    """Also copies. Nothing is added to the graph of the caller."""
    official = tokenization.FullTokenizer(f"{toy}/vocab.txt")
    examples = [InputExample(0, b"IS this", "jackson"), InputExample(1, "no", None)]
    wanted = ["[CLS] is this [SEP] jack ##son [SEP]", "[CLS] no [SEP]"]
    with tf.Graph().as_default() as graph:
        for each in (tokenizer, official, pickle.loads(pickle.dumps(official))):
            features = convert_examples_to_features(examples, 8, each)
            assert [" ".join(feature.tokens) for feature in features] == wanted
        assert graph.get_operations() == []


def test_a_vocabulary_without_unk(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[CLS]\n[SEP]\na\n<unk>\n", encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(str(path))
    assert tokenizer.tokenize("a b") == ["a", "[UNK]"]
    with pytest.raises(KeyError, match="UNK"):
        tokenizer.convert_tokens_to_ids(["[UNK]"])
    tokenizer.wordpiece_tokenizer.unk_token = "<unk>"
    assert tokenizer.tokenize("b") == ["<unk>"]
