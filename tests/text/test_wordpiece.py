"""Matching, against the plain-Python tokenizer: the fast way and the exact one, and offsets."""

import random
import re
import unicodedata

import pytest
import tensorflow as tf

from bert_features.text.tokenization import FullTokenizer
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, matchable
from bert_features.text.wordpiece import FAST_CHARACTERS, WordPiece
from tests.text.comparison import assert_equals_reference, graph_ids


def test_each_fast_character_in_context(character_tokenizer):
    fast = re.findall(f"[{FAST_CHARACTERS}]", "".join(map(chr, range(0x3000))))
    assert len(fast) > 700
    assert all(unicodedata.category(c) != "Cn" for c in fast)
    contexts = ["{0}", "a{0}b", "A{0} {0}", "{0}{0}{0}", "a{0}\t{0}b", "é{0}ы"]
    assert_equals_reference(character_tokenizer, (t.format(c) for c in fast for t in contexts))


def test_blanks_behind_unknown_words(case):
    # tensorflow-text 2.20's FastBertTokenizer loses "елан" in the first, adds an [UNK] elsewhere.
    texts = ["ә  елан", "ә\t b", "Z  b", "ә   bc d", "  a", "\U0001f600  b", "ә  .b", " ә a  ә  b "]
    assert_equals_reference(case[0], texts)


@pytest.mark.slow
def test_random_words_of_the_real_vocabularies(case):
    tokenizer, _ = case
    pieces = [t.removeprefix("##") for t in tokenizer.tokens if t and not t.startswith("[unused")]
    rng = random.Random(5)
    glue = ["", "", " ", " ", "  ", "\t", ".", "-", "'", "ә", "\u00ad", "é"]
    texts = [
        "".join(rng.choice(pieces) + rng.choice(glue) for _ in range(rng.randint(1, 8)))
        for _ in range(20_000)
    ]
    assert_equals_reference(tokenizer, texts)


@pytest.mark.parametrize("char", ["a", "é", "ж", "한", "\U0001f600", "–"])
def test_words_over_the_official_bound_are_unknown(character_tokenizer, char):
    lengths = [60, 66, 67, 99, 100, 101, 133, MAX_CHARS_PER_WORD - 1, MAX_CHARS_PER_WORD]
    lengths += [MAX_CHARS_PER_WORD + 1, 67 * 3, 400]
    assert_equals_reference(character_tokenizer, (f"x {char * n} y" for n in lengths))
    over = character_tokenizer.tokenize("x " + "a" * (MAX_CHARS_PER_WORD + 1) + " y")
    assert over == ["x", "[UNK]", "y"]


def test_ids_do_not_depend_on_the_neighbours_in_the_batch(minilm):
    texts = ["plain text", "ein Ångström", "ΟΔΟΣ", "日本", "", "Σ", "a\u0301", "\u0301b", "x" * 201]
    together = graph_ids(minilm, texts)
    assert together == [graph_ids(minilm, [text])[0] for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Déjà vu", [("de", "Dé"), ("##ja", "jà"), ("vu", "vu")]),
        ("cafe\u0301!", [("cafe", "cafe\u0301"), ("!", "!")]),
        ("so\u00adft \u200bware", [("soft", "so\u00adft"), ("ware", "ware")]),
        ("日本x", [("日", "日"), ("本", "本"), ("x", "x")]),
        ("한", [("ᄒ", "한"), ("##ᅡ", "한"), ("##ᆫ", "한")]),
        ("\U0001f600 ok", [("[UNK]", "\U0001f600"), ("ok", "ok")]),
        ("a " + "q" * 201 + " b", [("a", "a"), ("[UNK]", "q" * 201), ("b", "b")]),
        ("\u0301embeddings", [("em", "em"), ("##bed", "bed"), ("##ding", "ding"), ("##s", "s")]),
    ],
)
def test_offsets_point_at_the_characters_of_the_text(minilm, text, expected):
    padding = ["ünrelated före", text, "dahinter日"]
    encoding = minilm.encode(padding)[1]
    spans = [text[start:end] for start, end in encoding.offsets]
    assert list(zip(encoding.tokens, spans, strict=True)) == expected


def test_offsets_of_the_first_characters_with_more_bytes(tmp_path):
    """Characters of three and of four bytes begin at U+0800 and U+10000."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u0800", "##\U00010000", "##b"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt", do_lower_case=False)
    (encoding,) = tokenizer.encode(["\u0800\U00010000b \u0800"])
    assert encoding.offsets == [(0, 1), (1, 2), (2, 3), (4, 5)]


@pytest.mark.parametrize("file", ["english.txt", "ud_ewt.txt"])
def test_offsets_recover_every_word_of_english(minilm, read_lines, file):
    texts = read_lines(file)[:2000]
    ids = graph_ids(minilm, texts)
    for text, encoding, same in zip(texts, minilm.encode(texts), ids, strict=True):
        assert encoding.ids == same
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            if token != "[UNK]" and text.isascii():
                assert text[start:end].lower() == token.removeprefix("##")


ASCII_TEXTS = [
    *("", " ", "\t a  b \t", "a", "Don't -- stop !!", "[CLS] [MASK] ##a", "a\x7fb", "a\x00b"),
    *("x" * 100, "x" * 101, "a " + "x" * 101 + "  b", "unaffable  unaffable", "\u4e2d  a"),
]


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize("file", [None, "english.txt", "udhr_300.txt"])
def test_the_fast_way_to_offsets_gives_those_of_the_exact_one(
    minilm, read_lines, file, do_lower_case
):
    texts = [text.encode() for text in (ASCII_TEXTS if file is None else read_lines(file)[:500])]
    unknown = minilm.vocab["[UNK]"]
    matcher = WordPiece(matchable(minilm.tokens), unknown_id=unknown, do_lower_case=do_lower_case)
    for batch in (texts, texts[3:5], texts[-1:]):  # of both ways, and of one
        both = matcher.pieces(tf.constant(batch)), matcher.exact_pieces(tf.constant(batch))
        for found, expected in zip(*both, strict=True):
            assert found.dtype == expected.dtype
            assert found.to_list() == expected.to_list()


@pytest.mark.parametrize(("file", "step"), [("udhr_300.txt", 1), ("udhr.txt", 40)])
def test_offsets_in_order_and_inside_for_every_script(minilm, read_lines, file, step):
    texts = read_lines(file)[::step]
    for text, encoding in zip(texts, minilm.encode(texts), strict=True):
        for start, end in encoding.offsets:
            assert 0 <= start < end <= len(text)
        assert encoding.offsets == sorted(encoding.offsets)
