"""Spans: their pieces, chunks, and the rows that own their tokens, against plain loops."""

import re
from itertools import chain, count

import numpy as np
import pytest

from bert_features.batches.long_text import LongText
from bert_features.batches.rows import Layout
from bert_features.batches.spans import find_spans, place_spans
from bert_features.batches.unit_tables import UnitTable
from bert_features.batches.words import PiecePlaces, Units
from bert_features.errors import InputError
from bert_features.readers.input_example import InputExample, Span

CLS, SEP = 901, 902


def places_of(examples, size=3):
    """Pieces of up to `size` characters of each word; whole texts are the units."""
    units = Units.whole_texts(examples)
    found = [
        [
            (start, min(start + size, word.end()), start == word.start())
            for word in re.finditer(r"\S+", text)
            for start in range(word.start(), word.end(), size)
        ]
        for text in units.strings
    ]
    flat = np.array([piece for part in found for piece in part], int).reshape(-1, 3)
    lengths = np.array([len(part) for part in found])
    starts, ends, begins = flat.T.astype(np.int32)
    per_text = np.zeros(2 * len(examples), int)
    per_text[np.array(units.per_text) == 1] = lengths
    texts = np.repeat(np.arange(len(per_text)), per_text)
    return PiecePlaces(texts, starts, ends, begins.astype(bool)), per_text


def random_examples(seed):
    rng = np.random.default_rng(seed)
    examples = []
    for i in range(6):
        texts = [" ".join("x" * n for n in rng.integers(1, 9, rng.integers(0, 14))) for _ in "ab"]
        second = texts[1] if i % 2 else None
        spans = []
        for _ in range(4 if len(texts[0]) > 8 else 1):
            kind = int(second is not None and rng.integers(2))
            begin, end = np.sort(rng.integers(0, len(texts[kind]) + 1, 2)).tolist()
            spans.append(Span(begin, end, "", kind))
        examples.append(InputExample(i, texts[0], second, spans=tuple(spans)))
    return examples


@pytest.mark.parametrize("policy", ["truncate", "tail", "head_tail", "window"])
def test_each_token_of_a_span_is_in_one_part(policy):
    long_text = LongText(policy, 12, 4 if policy == "window" else None)
    layout = Layout(long_text, cls_id=CLS, sep_id=SEP)
    tables, crossing = [], 0
    for seed in range(8):
        examples = random_examples(seed)
        places, lengths = places_of(examples)
        values = np.arange(lengths.sum(), dtype=np.int32)  # so that an id says which piece it is
        rows, _ = layout.rows(values, lengths, None, str)
        rows, table = place_spans(rows, find_spans(examples, places, None), lengths.sum())
        tables.append(table)
        starts = np.cumsum(rows.lengths) - rows.lengths
        example = np.searchsorted(table.row_splits, table.part_units, side="right") - 1
        part_rows = np.searchsorted(rows.examples, example) + table.part_windows
        parts = dict(zip(zip(part_rows, table.part_slots, strict=True), count(), strict=False))
        got = [[] for _ in table.starts]
        for row, (start, length) in enumerate(zip(starts, rows.lengths, strict=True)):
            number = np.count_nonzero(part_rows == row)
            for k in range(number):
                begin, end = rows.span_begins[start + k], rows.span_ends[start + k]
                assert rows.own_starts[row] <= begin < end <= rows.own_ends[row]
                part = parts[row, k]
                unit = table.part_units[part]
                assert table.part_sizes[part] == end - begin
                got[unit] += [values_of := rows.values[start + begin : start + end].tolist()]
                assert not {CLS, SEP} & {*values_of}
            assert (rows.span_begins[start + number : start + length] == -1).all()
        kept = {*rows.values.tolist()}
        spans = [(2 * i + s.type_id, s) for i, e in enumerate(examples) for s in e.spans]
        for unit, (text, span) in enumerate(spans):
            inside = (
                (places.texts == text) & (places.starts < span.end) & (places.ends > span.begin)
            )
            want = np.flatnonzero(inside & (span.begin < span.end)).tolist()
            assert [*chain(*got[unit])] == [piece for piece in want if piece in kept]
            assert table.all_pieces[unit] == len(want)
            assert table.num_pieces[unit] == sum(map(len, got[unit]))
            crossing += len(got[unit]) > 1
    assert (crossing > 5) == (policy == "window")
    joined = UnitTable.join(tables)
    assert joined.part_units.max() < joined.row_splits[-1] == len(joined.starts)
    for name in ("all", "blank", "cut", "lost"):
        each = np.concatenate([table.counts()[name] for table in tables])
        np.testing.assert_array_equal(joined.counts()[name], each)
    assert joined.counts()["cut"].sum() > 0  # in windows of the shorter texts of pairs


@pytest.mark.parametrize(
    ("text", "size", "shared", "chunks"),
    [
        ("", 3, 0, []),
        ("a b c", 3, 0, ["a b c"]),
        ("a b c d e f g", 3, 0, ["a b c", "d e f", "g"]),
        ("a b c d e f g", 3, 1, ["a b c", "c d e", "e f g"]),
        ("aaa bbbbbb c d", 4, 0, ["aaa bbbbbb c", "d"]),
        ("a b cccccc d", 3, 0, ["a b", "cccccc d"]),  # the third token is no beginning of a word
        ("a b cccccc d", 3, 2, ["a b", "b cccccc", "cccccc d"]),
        ("aaaaaaaaaaaa b", 2, 1, ["aaaaaa", "aaaaaa", "b"]),  # longer than a chunk
    ],
)
def test_chunks_end_at_words(text, size, shared, chunks):
    example = InputExample(0, f"pp {text}", text, prompt=3)
    places, _ = places_of([example])
    found = find_spans([example], places, (size, shared))
    texts = [text[begin:end] for begin, end in zip(found.starts, found.ends, strict=True)]
    assert texts == chunks * 2
    assert found.texts.tolist() == [0] * len(chunks) + [1] * len(chunks)
    assert (np.diff(found.first_pieces) > 0).all()


def test_words_of_the_input_have_places_too():
    example = InputExample.from_words(0, ["ab", "", "cde"], ["f"], spans=(Span(4, 7), Span(0, 2)))
    units = Units.of([example], None)
    assert units.begins.tolist() == [0, 3, 4, 0]
    starts, ends = np.array([0, 4, 0]), np.array([2, 7, 1])
    places = PiecePlaces(np.array([0, 0, 1]), starts, ends, np.ones(3, bool))
    found = find_spans([example], places, None)
    assert found.first_pieces.tolist() == [1, 0]
    assert found.num_pieces.tolist() == [1, 1]


def test_a_row_has_room_for_a_span_of_each_token():
    """[CLS] a b [SEP] has four; the other examples lose nothing."""
    many = InputExample(0, "a b", spans=(Span(0, 1),) * 3 + (Span(2, 3),) * 3)
    examples = [many, InputExample(1, "a b", spans=(Span(0, 3),))]
    places, lengths = places_of(examples)
    layout = Layout(LongText(seq_length=8), cls_id=CLS, sep_id=SEP)
    rows, _ = layout.rows(np.zeros(4, np.int32), lengths, None, str)
    rows, table = place_spans(rows, find_spans(examples, places, None), 4)
    assert table.num_pieces.tolist() == [1, 1, 1, 1, 0, 0, 2]
    assert table.counts()["lost"].tolist() == [2, 0]
    assert rows.span_begins.tolist() == [1, 1, 1, 2, 1, -1, -1, -1]
    assert rows.span_ends.tolist() == [2, 2, 2, 3, 3, -1, -1, -1]


def test_what_is_refused():
    places, _ = places_of([InputExample("me", "a b")])
    with pytest.raises(InputError, match="'me' has no spans"):
        find_spans([InputExample("me", "a b")], places, None)
