"""The tokenizers of ALBERT, XLM-R, RoBERTa and ModernBERT, against the families' own code.

`tests/data/tokenizers` has small tokenizers in the form in which each family publishes them, and
what sentencepiece and transformers make of some hundred lines; scripts/make_reference_tokenizers.py
made them.
"""

import json
import re
import unicodedata
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_features.batches.input_fn import TextInputFn
from bert_features.batches.long_text import LongText
from bert_features.batches.packing import encode_texts
from bert_features.checkpoints.tokenizer import tokenizer_of
from bert_features.errors import CheckpointError, ConfigError
from bert_features.extraction.units import columns_of_units
from bert_features.official.features import convert_examples_to_features
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenizer_files import read_tokenizer
from tests.family_tokenizers import FILES, golden

SPECIALS = "[CLS] [SEP] [PAD] [MASK] [UNK] <s> </s> <pad> <mask> <unk>"
LONG = "supercalifragilistic" * 500
ODD = [
    *(
        "",
        " ",
        " \t\n ",
        "\0",
        "a\0b\x01\x1f c\x85d",
        "👩‍👩‍👧 👍🏽",
        "\u0301a\u0301\u0302 \u0301",
        "שלום مرحبا abc",
    ),
    *(
        SPECIALS,
        LONG,
        "中文，不分词。",
        "ﷺ ﬁ½ x",
        "▁▁a ▁",
        "\u200b\u200d\ufeff",
        "8,17, 1,8,",
        "Σ ΑΣ",
    ),
]


@pytest.fixture(scope="module", params=FILES)
def family(request, family_files):
    """The name of a family, and its tokenizer."""
    name = request.param
    file = read_tokenizer(family_files / name / FILES[name])
    return name, tokenizer_of(file, name == "albert")


def rows(values, lengths):
    return [row.tolist() for row in np.split(values, np.cumsum(lengths)[:-1])]


def test_ids_of_multilingual_lines(family):
    name, tokenizer = family
    texts = json.loads(str(golden("texts")))
    assert len(texts) > 350
    wanted = rows(golden(f"{name}.ids"), golden(f"{name}.lengths"))
    assert tokenizer.encode_ids(texts) == wanted
    assert [encoding.ids for encoding in tokenizer.encode(texts)] == wanted


def test_offsets_of_multilingual_lines(family):
    """Theirs count white space before a piece, and no mark that goes with a letter before it."""
    name, tokenizer = family
    texts = json.loads(str(golden("texts")))
    lengths = golden(f"{name}.lengths")
    starts, sizes = (rows(golden(f"{name}.{part}"), lengths) for part in ("starts", "sizes"))
    compared = blank = total = 0
    for text, encoding, begins, widths in zip(
        texts, tokenizer.encode(texts), starts, sizes, strict=True
    ):
        if begins[:1] == [-1]:  # the fast tokenizer has other ids
            continue
        for token, (start, end), begin, width in zip(
            encoding.tokens, encoding.offsets, begins, widths, strict=True
        ):
            total += 1
            theirs = text[begin : begin + width]
            if token == "▁" or not theirs.strip():
                blank += start == end
                continue
            first = begin + len(theirs) - len(theirs.lstrip())
            last = first + len(theirs.strip())
            assert start == first
            assert end >= last
            assert all(map(unicodedata.combining, text[last:end]))
            compared += 1
    assert compared > 10_000
    assert compared + blank > total - 20  # a character that becomes several may hold a blank


@pytest.mark.parametrize(
    ("name", "model_type", "pieces"),
    [
        ("albert", "albert", "[CLS] [SEP] <pad> <unk> [MASK]"),
        ("xlm_roberta", "xlm-roberta", "<s> </s> <pad> <unk> <mask>"),
        ("xlm_roberta", "camembert", "<s> </s> <pad> <unk> <mask>"),
        ("roberta", "roberta", "<s> </s> <pad> <unk> <mask>"),
        ("modernbert", "modernbert", "[CLS] [SEP] [PAD] [UNK] [MASK]"),
    ],
)
def test_special_ids_are_those_of_the_familys_pieces(name, model_type, pieces, family_files):
    file = read_tokenizer(family_files / name / FILES[name], model_type)
    frame = file.frame
    ids = (frame.cls_id, frame.sep_id, frame.pad_id, frame.unknown_id, frame.mask_id)
    assert " ".join(file.tokens[number] for number in ids) == pieces


def test_pairs_are_framed_as_the_family_does(family):
    name, tokenizer = family
    pairs = json.loads(str(golden("pairs")))
    lengths = golden(f"{name}.pair_lengths")
    ids, types = (rows(golden(f"{name}.pair_{part}"), lengths) for part in ("ids", "types"))
    examples = [InputExample(i, a, b) for i, (a, b) in enumerate(pairs)]
    size = int(lengths.max())
    found = convert_examples_to_features(examples, size, tokenizer)
    padding = tokenizer.frame.pad_id
    for row, its_ids, its_types in zip(found, ids, types, strict=True):
        rest = size - len(its_ids)
        assert row.input_ids == its_ids + [padding] * rest
        assert row.input_type_ids == its_types + [0] * rest
        assert sum(row.input_mask) == len(its_ids)
        assert row.tokens_lost == 0
        assert len(row.tokens) == len(its_ids)


@pytest.mark.parametrize("size", [3, 5, 6, 12, 400])
def test_streamed_rows_are_those_of_the_python_objects(family, size):
    _, tokenizer = family
    texts = ["in 1948, two blanks", "a", "", "日本国憲法 第一章 and more of it, 17, or not"]
    pairs = [(text, None) for text in texts] + [(a, b) for a in texts for b in texts]
    examples = [InputExample(i, *pair) for i, pair in enumerate(pairs)]
    wanted = convert_examples_to_features(examples, size, tokenizer)
    input_fn = TextInputFn(lambda: iter(examples), tokenizer, buckets=(size,))
    (batch,) = input_fn.batches({"batch_size": len(examples), "num_devices": 1})
    for name in ("input_ids", "input_mask", "input_type_ids"):
        column = batch[name.replace("input_ids", "input_word_ids")]
        by_example = column[np.argsort(batch["unique_ids"])]
        assert by_example.tolist() == [getattr(row, name) for row in wanted]
    lost = batch["tokens_lost"][np.argsort(batch["unique_ids"])]
    assert lost.tolist() == [row.tokens_lost for row in wanted]
    if not tokenizer.in_graph:
        with pytest.raises(ConfigError, match=r"^the tokenizer of [^<]*\.json is no TensorFlow op"):
            tf.function(tokenizer, autograph=False)(tf.constant(["a"]))
        return
    first = tf.constant([e.text_a for e in examples])
    second = tf.constant([e.text_b or "" for e in examples])
    encode = partial(encode_texts, tokenizer, seq_length=size)
    inside = (tf.function(encode) if size == 12 else encode)(first, second)
    assert inside["input_word_ids"].numpy().tolist() == [row.input_ids for row in wanted]
    assert inside["input_type_ids"].numpy().tolist() == [row.input_type_ids for row in wanted]
    assert inside["tokens_lost"].numpy().tolist() == [row.tokens_lost for row in wanted]


def test_windows_hold_each_piece_once_as_its_own(family):
    _, tokenizer = family
    text = "one two three, four: five six seven eight nine ten eleven " * 3
    examples = [InputExample(0, text), InputExample(1, "a short text", text)]
    input_fn = TextInputFn(
        lambda: iter(examples), tokenizer, buckets=(24,), long_text=LongText("window", 24)
    )
    frame = tokenizer.frame
    (window,) = input_fn.megabatches()
    columns = window.columns
    values = np.split(columns["values"], np.cumsum(columns["lengths"])[:-1])
    alone, short = tokenizer.encode_ids([text, "a short text"])
    between = [frame.sep_id] * frame.separators
    wanted = [
        [frame.cls_id, *alone, frame.sep_id],
        [frame.cls_id, *short, *between, *alone, frame.sep_id],
    ]
    assert frame.max_tokens == len(wanted[1]) - len(short) - len(alone)
    own = {0: [], 1: []}
    for row, number, start, end in zip(
        values, columns["unique_ids"], columns["own_starts"], columns["own_ends"], strict=True
    ):
        assert len(row) <= 24
        assert row[0] == frame.cls_id
        assert row[-1] == frame.sep_id
        own[int(number)] += row[start:end].tolist()
    assert [own[0], own[1]] == wanted
    assert columns["tokens_lost"].sum() == 0
    assert (columns["num_windows"] > 2).all()


@pytest.mark.parametrize("given_words", [False, True])
def test_words_stand_between_white_space(family, given_words):
    _, tokenizer = family
    texts = ["In 1948,  two\tblanks don't  (stop) ", "日本国 憲法", "", "é 8,17, word's"]
    split = [text.split() for text in texts]
    make = InputExample.from_words if given_words else InputExample
    inputs = split if given_words else texts
    examples = [make(i, text, inputs[0]) for i, text in enumerate(inputs)]
    input_fn = TextInputFn(lambda: iter(examples), tokenizer, buckets=(128,), words="whitespace")
    (megabatch,) = input_fn.megabatches()
    table = megabatch.units["word"]
    strings = columns_of_units("word", table, examples, labelled=False)["words"]
    for i, inputs in enumerate(examples):
        its = slice(table.row_splits[i], table.row_splits[i + 1])
        assert strings[its].tolist() == [*split[i], *split[0]]
        # Every piece that shares a character with a word, counted by hand.
        counts = []
        for text, pieces in ((inputs.text_a, split[i]), (inputs.text_b, split[0])):
            (encoding,) = tokenizer.encode([text])
            spans = [match.span() for match in re.finditer(r"\S+", text)]
            assert [text[a:b] for a, b in spans] == pieces
            counts += [
                sum(start < b and max(end, start + 1) > a for start, end in encoding.offsets)
                for a, b in spans
            ]
        assert table.all_pieces[its].tolist() == counts
        assert all(counts)


def test_texts_are_not_split_like_bert_without_wordpiece_and_words_need_no_split(family):
    _, tokenizer = family
    words = InputExample.from_words(0, ["In", "don't", "日本国"])

    def rows(split, *examples):
        input_fn = TextInputFn(lambda: iter(examples), tokenizer, buckets=(64,), words=split)
        (window,) = input_fn.megabatches()
        return [
            window.columns["values"].tolist(),
            *map(np.ndarray.tolist, vars_of(window.units["word"])),
        ]

    def vars_of(table):
        return [table.row_splits, table.all_pieces, table.starts, table.ends]

    assert rows("bert", words) == rows("whitespace", words)
    with pytest.raises(ConfigError, match="word_split"):
        rows("bert", words, InputExample(1, "a text"))


def test_a_comma_behind_a_number_has_its_own_place(family_files):
    tokenizer = tokenizer_of(read_tokenizer(family_files / "albert" / FILES["albert"]), True)
    text = "a8, 17,"
    (encoding,) = tokenizer.encode([text])
    places = [text[start:end] for start, end in encoding.offsets if start < end]
    assert places == ["a", "8", ",", "17", "17", ","]  # the parts of a number have one place


ALPHABET = st.sampled_from([*"aZé\u0301 \t\n\0 中ß½ﬁΣ日🏽👍\u200dא,8'<>/s[]", "<s>", "[CLS]", "  "])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(ALPHABET, max_size=12).map("".join), min_size=1, max_size=4))
@example(ODD)
def test_offsets_are_places_in_the_text(family, texts):
    name, tokenizer = family
    special = {*tokenizer.frame.special_ids, tokenizer.frame.pad_id, tokenizer.frame.mask_id}
    encodings = tokenizer.encode(texts)
    assert [encoding.ids for encoding in encodings] == tokenizer.encode_ids(texts)
    for text, encoding in zip(texts, encodings, strict=True):
        assert special.isdisjoint(encoding.ids)
        covered = set()
        starts = [start for start, _ in encoding.offsets]
        assert starts == sorted(starts)
        for start, end in encoding.offsets:
            assert 0 <= start <= end <= len(text)
            assert text[start:end] == text[start:end].strip()
            covered.update(range(start, end))
        if name == "roberta":  # bytes of the text itself: nothing is lost
            assert covered == {i for i, char in enumerate(text) if not char.isspace()}
        else:
            letters = {i for i, char in enumerate(text) if char.isalnum()}
            assert letters <= covered


def test_a_saved_model_contains_the_model(family_files, tmp_path):
    file = read_tokenizer(family_files / "xlm_roberta" / FILES["xlm_roberta"])
    tokenizer = tokenizer_of(file, False)
    module = tf.Module()
    module.operation = tokenizer.operation
    module.ids = tf.function(
        lambda texts: tokenizer(texts).to_tensor(),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    expected = tokenizer(tf.constant(ODD)).to_tensor().numpy()
    np.testing.assert_array_equal(loaded.ids(tf.constant(ODD)), expected)


def test_a_model_of_another_family(tmp_path, family_files):
    content = (family_files / "albert" / "spiece.model").read_bytes()
    path = tmp_path / "spiece.model"
    path.write_bytes(content.replace(b"[MASK]", b"[NONE]"))
    with pytest.raises(CheckpointError, match="neither ALBERT's SentencePiece model, which has"):
        read_tokenizer(path)
    for damaged in (content[:5000], b"\xff" * 40, b"", b"\x0a\x02\x15\x00"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"is not a SentencePiece model|neither ALBERT's"):
            read_tokenizer(path)
