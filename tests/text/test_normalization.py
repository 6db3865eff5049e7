"""Normalisation, against the plain-Python tokenizer: every code point, and hard sequences."""

import random

import pytest
import tensorflow as tf

from bert_features.text.tokenization import FullTokenizer
from tests.text.comparison import assert_equals_reference, characters, graph_ids


@pytest.mark.slow
def test_every_code_point_in_context(character_tokenizer):
    # Alone, inside a word, between accents that reorder around it, and around a sigma.
    texts = (f"a{c}b {c} A{c}\u0323\u0307Σ{c}\u302e\U0001d16d" for c in characters())
    assert_equals_reference(character_tokenizer, texts)


def _awkward_texts(count):
    # Marks of many combining classes, among them spacing ones and one of class 0 (U+034F); sigmas;
    # what lower-cases to two characters; syllables, ligatures, ideographs that decompose; controls.
    awkward = [
        *"aΣσς İǅ’.:-_'·ﬁﬀ한글日豈",
        *"\u3000\u2028\u2029\u00a0\u00ad\u200b\u200d\ufeff\ufffd\x00\x07\x1c",
        *"\x85\t\r\n≮;\u037e\u1fef\u0387\u0345ʰ",
        *"\u0300\u0315\u0323\u034f\u0301\u302e\u302f\u1b44\u1bf2\U00016ff0\u0b4b\u0c4b\u0dca",
        *"\U0001d15e\U0001d160\U0001d165\U0001d166\U0001d16d\U0001d172\U000e0041\U0002f800",
    ]
    rng = random.Random(20)
    return ["".join(rng.choices(awkward, k=rng.randint(1, 14))) for _ in range(count)]


def test_sequences_of_awkward_characters(character_tokenizer):
    assert_equals_reference(character_tokenizer, _awkward_texts(20_000))


@pytest.mark.parametrize("chinese", [True, False])
@pytest.mark.parametrize("lower", [True, False])
def test_the_switches(character_vocab, read_lines, lower, chinese):
    switches = {"strip_accents": chinese != lower, "tokenize_chinese_chars": chinese}
    tokenizer = FullTokenizer(character_vocab, lower, **switches)
    assert_equals_reference(tokenizer, [*_awkward_texts(4000), *read_lines("udhr_300.txt")])


def test_bytes_that_are_not_utf8_are_dropped(minilm):
    assert minilm(tf.constant([b"ba\xffnk"])).to_list() == graph_ids(minilm, ["bank"])


def test_lone_surrogates_are_letters_without_a_piece(minilm):
    assert minilm.tokenize("a \ud800b c") == ["a", "[UNK]", "c"]
