"""FullTokenizer against published ids, real texts and the plain-Python tokenizer."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_features.text.tokenization import FullTokenizer
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.text.comparison import assert_equals_reference, graph_ids
from tests.toy import SPECIAL

BANK = (
    "After stealing money from the bank vault, the bank robber was seen fishing on the "
    "Mississippi river bank."
)


def test_published_cases(case):
    tokenizer, texts = case
    cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    encodings = tokenizer.encode(text["text"] for text in texts)
    for text, encoding in zip(texts, encodings, strict=True):
        assert [cls, *encoding.ids, sep] == text["ids"], text["text"]
        assert tokenizer.convert_ids_to_tokens(encoding.ids) == text["tokens"], text["text"]


@pytest.mark.parametrize("index", [-1, 10**6])
def test_an_id_outside_of_the_vocabulary_is_no_piece(minilm, index):
    with pytest.raises(IndexError):
        minilm.convert_ids_to_tokens([101, index])


def test_bank_sentence_of_the_tutorials(minilm):
    # The ids that the tutorials on BERT word embeddings print for this sentence.
    ids = [2044, 11065, 2769, 2013, 1996, 2924, 11632, 1010, 1996, 2924, 27307, 2001, 2464, 5645]
    ids += [2006, 1996, 5900, 2314, 2924, 1012]
    assert minilm.encode([BANK])[0].ids == ids
    assert [i + 1 for i, token in enumerate(minilm.tokenize(BANK)) if token == "bank"] == [
        6,
        10,
        19,
    ]


@pytest.mark.parametrize(
    ("file", "step"),
    [
        ("udhr_300.txt", 1),
        ("english.txt", 1),
        pytest.param("udhr.txt", 7, marks=pytest.mark.slow),
        pytest.param("ud_ewt.txt", 1, marks=pytest.mark.slow),
    ],
)
def test_real_texts(case, read_lines, file, step):
    tokenizer, _ = case
    assert_equals_reference(tokenizer, read_lines(file)[::step])


@pytest.mark.parametrize(("file", "step"), [("udhr_300.txt", 1), ("udhr.txt", 29)])
def test_the_chinese_vocabulary_as_google_uses_it(vocabularies, read_lines, file, step):
    tokenizer = FullTokenizer(vocabularies / "chinese_21128.txt", do_lower_case=True)
    assert_equals_reference(tokenizer, read_lines(file)[::step])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=20))
def test_strings_made_by_hypothesis(compiled, texts):
    graph, reference = compiled
    got = graph(tf.constant([text.encode() for text in texts])).to_list()
    assert got == [reference.ids(text) for text in texts]


@pytest.fixture(scope="module")
def compiled(character_tokenizer):
    """The tokenizer traced once, for a test that calls it often, and its reference."""
    signature = [tf.TensorSpec([None], tf.string)]
    return (
        tf.function(character_tokenizer, input_signature=signature),
        ReferenceTokenizer(character_tokenizer.vocab, character_tokenizer.do_lower_case),
    )


def test_special_tokens_in_a_text_are_ordinary_characters(minilm):
    assert minilm.tokenize("[CLS] [MASK]") == ["[", "cl", "##s", "]", "[", "mask", "]"]


TWO_WAYS = [b"unaffable", "Ünïcode … ﬁ".encode(), b"", "ΟΔΥΣΣΕΥΣ ,is".encode()]


@pytest.fixture
def small_tokenizer():
    return FullTokenizer([*SPECIAL, "un", "##aff", "##able", "is", ",", "f", "##i"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["__call__", "tokenize_with_offsets"])
def test_the_first_calls_give_what_the_graph_gives(small_tokenizer, name, monkeypatch):
    """They go op by op; texts that take each of the two ways, together."""
    monkeypatch.setattr("bert_features.text.tokenization._CALLS_BEFORE_TRACING", 2)
    texts = tf.constant(TWO_WAYS)
    call = getattr(small_tokenizer, name)
    traced = small_tokenizer._exact if name == "__call__" else small_tokenizer._pieces
    eager = [call(texts) for _ in range(2)]
    assert traced.traces == 0
    graph = call(texts)
    assert traced.traces == 1
    inside_a_graph = tf.function(call)(texts)
    for result in (eager[0], eager[-1], inside_a_graph):
        flat = (tf.nest.flatten(x, expand_composites=True) for x in (result, graph))
        for a, b in zip(*flat, strict=True):
            np.testing.assert_array_equal(a, b)


def test_texts_of_the_fast_way_need_nothing_of_the_exact_one(monkeypatch, small_tokenizer):
    monkeypatch.setattr(
        "bert_features.text.wordpiece.make_word_matcher", lambda pieces: pytest.fail("made")
    )
    assert small_tokenizer(tf.constant(["unaffable, is"])).to_list() == [[5, 6, 7, 9, 8]]
    assert small_tokenizer.encode_ids(["is", "", "un un"]) == [[8], [], [5, 5]]


def test_ids_alone(minilm):
    assert minilm.encode_ids([]) == []
    texts = ["", "bank robber", "日本 …", "", "q" * 201, "x", ""]
    assert minilm.encode_ids(texts) == [encoding.ids for encoding in minilm.encode(texts)]


def test_empty_batch_and_empty_texts(minilm):
    assert minilm.encode([]) == []
    assert minilm(tf.constant([], tf.string)).to_list() == []
    assert minilm(tf.constant(["", " \t", "\u00ad\u0301"])).to_list() == [[], [], []]


@pytest.mark.slow
def test_inside_tf_data(minilm):
    texts = ["bank robber", "ÀÉ", "Σίσυφος ΣΑΣ"] * 5
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(4)
    rows = [row for ids in dataset.map(minilm, num_parallel_calls=2) for row in ids.to_list()]
    assert rows == graph_ids(minilm, texts)


@pytest.mark.slow
def test_inside_a_saved_model(minilm, tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, texts):
            return minilm(texts)

    texts = ["bank robber", "ÀÉ ½ º …", "ΑΣ 한국어 豈", "x" * 201]
    tf.saved_model.save(Module(), str(tmp_path))
    assert tf.saved_model.load(str(tmp_path))(tf.constant(texts)).to_list() == graph_ids(
        minilm, texts
    )


@pytest.mark.parametrize("lower", [True, False])
def test_hostile_vocabularies_give_the_official_ids(caplog, lower):
    pieces = ["is", "a\0b", "\0", "##\0", "x" * 256, "##" + "y" * 300, "is", "##x", "a", "##x"]
    tokenizer = FullTokenizer([*SPECIAL, *pieces, "[UNK]"], do_lower_case=lower)
    texts = ["is a", "a\0b isx", "x" * 256, "x" * 200, "a" + "y" * 300, "is\0is \0"]
    assert_equals_reference(tokenizer, texts)
    assert tokenizer.encode(["is ax"])[0].ids == [11, 13, 14]  # the last of two equal pieces
    assert "3 piece(s) more than once: '[UNK]', 'is', '##x'; the last id" in caplog.text
