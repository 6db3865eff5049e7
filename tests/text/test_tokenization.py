"""The graph tokenizer against the plain-Python one: ids for everything, offsets besides."""

import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_features.errors import CheckpointError
from bert_features.text.tokenization import FAST_CHARACTERS, MAX_CHARS_PER_WORD, FullTokenizer
from bert_features.text.vocabulary import read_vocab
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.toy import SPECIAL

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BANK = (
    "After stealing money from the bank vault, the bank robber was seen fishing on the "
    "Mississippi river bank."
)


def graph_ids(tokenizer, texts):
    return tokenizer(tf.constant([text.encode() for text in texts])).to_list()


def assert_equals_reference(tokenizer, texts):
    reference = ReferenceTokenizer.from_tokens(tokenizer.tokens, lower=tokenizer.do_lower_case)
    texts = list(texts)
    got = graph_ids(tokenizer, texts)
    wrong = [t for t, ids in zip(texts, got, strict=True) if ids != reference.ids(t)]
    assert not wrong, f"{len(wrong)} of {len(texts)} texts differ, first {wrong[0]!r}"


@pytest.fixture(scope="module")
def character_vocab():
    """Every visible character is a piece: nothing can hide in [UNK]."""
    hidden = ("Zs", "Zl", "Zp", "Cc", "Cs", "Cn", "Co")
    chars = [chr(c) for c in CODE_POINTS if unicodedata.category(chr(c)) not in hidden]
    return [*SPECIAL, *chars, *("##" + char for char in chars)]


@pytest.fixture(scope="module", params=["uncased", "cased"])
def character_tokenizer(request, character_vocab):
    return FullTokenizer(character_vocab, do_lower_case=request.param == "uncased")


@pytest.fixture(scope="module")
def minilm(minilm_dir):
    return FullTokenizer(minilm_dir / "vocab.txt", do_lower_case=True)


@pytest.fixture(scope="module", params=["uncased", "cased", "chinese"])
def case(request, shared_data):
    """(tokenizer, texts with published tokens and ids) of one published vocabulary."""
    vocab = {"cased": "cased_28996.txt", "chinese": "chinese_21128.txt"}
    if request.param == "uncased":
        path = request.getfixturevalue("minilm_dir") / "vocab.txt"
    else:
        path = shared_data / "vocab" / vocab[request.param]
    cases = json.loads((shared_data / "tokenization_cases.json").read_text())["cases"]
    # The Chinese cases were published for Hugging Face's bert-base-chinese, which keeps case.
    tokenizer = FullTokenizer(path, do_lower_case=request.param == "uncased")
    return tokenizer, cases[request.param]


def test_published_cases(case):
    tokenizer, texts = case
    for text in texts:
        (encoding,) = tokenizer.encode([text["text"]])
        cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        assert [cls, *encoding.ids, sep] == text["ids"], text["text"]
        assert tokenizer.convert_ids_to_tokens(encoding.ids) == text["tokens"], text["text"]


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


@pytest.mark.parametrize("file", ["udhr.txt", "ud_ewt.txt"])
def test_real_texts(case, shared_data, file):
    tokenizer, _ = case
    texts = (shared_data / file).read_text(encoding="utf-8").split("\n")
    assert_equals_reference(tokenizer, texts if file == "ud_ewt.txt" else texts[::7])


def test_real_texts_with_the_chinese_vocabulary_as_google_uses_it(shared_data):
    tokenizer = FullTokenizer(shared_data / "vocab" / "chinese_21128.txt", do_lower_case=True)
    texts = (shared_data / "udhr.txt").read_text(encoding="utf-8").split("\n")
    assert_equals_reference(tokenizer, texts[3::29])


def test_every_line_of_the_declaration(minilm, shared_data):
    assert_equals_reference(minilm, (shared_data / "udhr.txt").read_text("utf-8").split("\n"))


def test_every_code_point_in_context(character_tokenizer):
    # Alone, inside a word, between accents that reorder around it, and around a sigma.
    # Of the 830,000 code points without a character, every 97th stands for its kin.
    empty = {c for c in CODE_POINTS if unicodedata.category(chr(c)) in ("Cn", "Co") and c % 97}
    chars = [chr(c) for c in CODE_POINTS if c not in empty]
    texts = (f"a{c}b {c} A{c}\u0323\u0307Σ{c}\u302e\U0001d16d" for c in chars)
    assert_equals_reference(character_tokenizer, texts)


def test_each_fast_character_in_context(character_tokenizer):
    ranges = FAST_CHARACTERS.replace("\\", "")
    fast = [chr(c) for c in range(0x3000) if _in_class(ranges, chr(c))]
    assert len(fast) > 700
    assert all(unicodedata.category(c) != "Cn" for c in fast)
    contexts = ["{0}", "a{0}b", "A{0} {0}", "{0}{0}{0}", "a{0}\t{0}b", "é{0}ы"]
    assert_equals_reference(character_tokenizer, (t.format(c) for c in fast for t in contexts))


def _in_class(ranges, char):
    i = 0
    while i < len(ranges):
        is_range = ranges[i + 1 : i + 2] == "-"
        last = ranges[i + 2] if is_range else ranges[i]
        if ranges[i] <= char <= last:
            return True
        i += 3 if is_range else 1
    return False


def test_sequences_of_awkward_characters(character_tokenizer):
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
    texts = ["".join(rng.choices(awkward, k=rng.randint(1, 14))) for _ in range(20_000)]
    assert_equals_reference(character_tokenizer, texts)


def test_blanks_behind_unknown_words(case):
    # tensorflow-text 2.20's FastBertTokenizer loses "елан" in the first, adds an [UNK] elsewhere.
    texts = ["ә  елан", "ә\t b", "Z  b", "ә   bc d", "  a", "\U0001f600  b", "ә  .b", " ә a  ә  b "]
    assert_equals_reference(case[0], texts)


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


@settings(max_examples=200, deadline=None)
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


@pytest.mark.parametrize("char", ["a", "é", "ж", "한", "\U0001f600", "–"])
def test_words_over_the_official_bound_are_unknown(character_tokenizer, char):
    lengths = [60, 66, 67, 99, 100, 101, 133, MAX_CHARS_PER_WORD - 1, MAX_CHARS_PER_WORD]
    lengths += [MAX_CHARS_PER_WORD + 1, 67 * 3, 400]
    assert_equals_reference(character_tokenizer, (f"x {char * n} y" for n in lengths))
    over = character_tokenizer.tokenize("x " + "a" * (MAX_CHARS_PER_WORD + 1) + " y")
    assert over == ["x", "[UNK]", "y"]


def test_special_tokens_in_a_text_are_ordinary_characters(minilm):
    assert minilm.tokenize("[CLS] [MASK]") == ["[", "cl", "##s", "]", "[", "mask", "]"]


def test_ids_do_not_depend_on_the_neighbours_in_the_batch(minilm):
    texts = ["plain text", "ein Ångström", "ΟΔΟΣ", "日本", "", "Σ", "a\u0301", "\u0301b", "x" * 201]
    together = graph_ids(minilm, texts)
    assert together == [graph_ids(minilm, [text])[0] for text in texts]


def test_the_first_call_gives_what_the_graph_gives():
    """It goes op by op; texts that take each of the two ways, together."""
    texts = tf.constant([b"unaffable", "Ünïcode … ﬁ".encode(), b"", "ΟΔΥΣΣΕΥΣ ,is".encode()])
    tokenizer = FullTokenizer([*SPECIAL, "un", "##aff", "##able", "is", ",", "f", "##i"])
    for call in (tokenizer, tokenizer.tokenize_with_offsets):
        first, second = call(texts), call(texts)
        flat = (tf.nest.flatten(x, expand_composites=True) for x in (first, second))
        for a, b in zip(*flat, strict=True):
            np.testing.assert_array_equal(a, b)


def test_empty_batch_and_empty_texts(minilm):
    assert minilm.encode([]) == []
    assert minilm(tf.constant([], tf.string)).to_list() == []
    assert minilm(tf.constant(["", " \t", "\u00ad\u0301"])).to_list() == [[], [], []]


def test_bytes_that_are_not_utf8_are_dropped(minilm):
    assert minilm(tf.constant([b"ba\xffnk"])).to_list() == graph_ids(minilm, ["bank"])


def test_lone_surrogates_are_letters_without_a_piece(minilm):
    assert minilm.tokenize("a \ud800b c") == ["a", "[UNK]", "c"]


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


def test_offsets_recover_every_word_of_english(minilm, shared_data):
    texts = (shared_data / "ud_ewt.txt").read_text("utf-8").split("\n")[:2000]
    ids = graph_ids(minilm, texts)
    for text, encoding, same in zip(texts, minilm.encode(texts), ids, strict=True):
        assert encoding.ids == same
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            if token != "[UNK]" and text.isascii():
                assert text[start:end].lower() == token.removeprefix("##")


def test_offsets_in_order_and_inside_for_every_script(minilm, shared_data):
    texts = (shared_data / "udhr.txt").read_text("utf-8").split("\n")[::40]
    for text, encoding in zip(texts, minilm.encode(texts), strict=True):
        for start, end in encoding.offsets:
            assert 0 <= start < end <= len(text)
        assert encoding.offsets == sorted(encoding.offsets)


def test_the_last_of_two_equal_pieces_counts_and_blank_ones_match_nothing():
    tokenizer = FullTokenizer([*SPECIAL, "a", "", "a", "##b", "##b"])
    assert tokenizer.encode(["ab a"])[0].ids == [7, 9, 7]
    assert tokenizer.encode(["ab a"])[0].tokens == ["a", "##b", "a"]


def test_inside_tf_data(minilm):
    texts = ["bank robber", "ÀÉ", "Σίσυφος ΣΑΣ"] * 5
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(4)
    rows = [row for ids in dataset.map(minilm, num_parallel_calls=2) for row in ids.to_list()]
    assert rows == graph_ids(minilm, texts)


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


def test_vocabulary_without_unk_is_refused():
    with pytest.raises(CheckpointError, match=r"lacks \[UNK\]"):
        FullTokenizer(["[CLS]", "a"])


def test_read_vocab_splits_at_line_feeds_only(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("[UNK]\na\u2028b\n c \r\n\nlast".encode())
    assert read_vocab(path) == ["[UNK]", "a\u2028b", "c", "", "last"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (b"", "is empty"), (b"ok\n\xff\n", "not UTF-8: byte 0xff at offset 3")],
)
def test_read_vocab_refuses(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_vocab(path)
