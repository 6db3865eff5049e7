"""Rows of examples that do not fit: each policy against a brute-force reading of its promise."""

import itertools
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from bert_features.batches.long_text import LongText, kept_lengths
from bert_features.batches.rows import Layout
from bert_features.batches.words import PieceRuns
from bert_features.errors import InputError

CLS, SEP = -101, -102


def lay_out(policy, seq_length, lengths, *, stride=None, words=None):
    """Rows of examples with texts of these (a, b) lengths, whose pieces are 0, 1, 2, …"""
    layout = Layout(LongText(policy, seq_length, stride), cls_id=CLS, sep_id=SEP)
    text_lengths = np.array(lengths).ravel()
    values = np.arange(text_lengths.sum(), dtype=np.int32)
    return layout.rows(values, text_lengths, words, lambda i: f"example {i}")


def ids_of(rows):
    return [part.tolist() for part in np.split(rows.values, np.cumsum(rows.lengths)[:-1])]


def words_of(word_lengths, seed_text=0):
    """One PieceRuns of single texts with words of these lengths."""
    texts = np.repeat(2 * np.arange(len(word_lengths)), [len(w) for w in word_lengths])
    counts = np.concatenate([np.array(w, np.int64) for w in word_lengths])
    nothing = np.full(len(counts), -1, np.int32)
    return PieceRuns(texts, np.cumsum(counts) - counts, counts, nothing, nothing)


def tables_of(table):
    """The table of each example, and by word the window and the number of its vector, or -1."""
    columns = {f.name: getattr(table, f.name) for f in fields(table)[1:]}
    for name in ("windows", "slots"):
        columns[name] = np.full(len(table.starts), -1)
        columns[name][table.part_units] = columns[f"part_{name}"]
    for start, stop in itertools.pairwise(table.row_splits.tolist()):
        yield SimpleNamespace(**{name: values[start:stop] for name, values in columns.items()})


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("truncate", [0, 1, 2, 3]),
        ("tail", [6, 7, 8, 9]),
        ("head_tail", [0, 7, 8, 9]),  # 128 / 510 of 4, rounded down, is 1
    ],
)
def test_one_row(policy, kept):
    rows, _ = lay_out(policy, 6, [(10, 0), (4, 0), (0, 0)])
    assert ids_of(rows) == [[CLS, *kept, SEP], [CLS, 10, 11, 12, 13, SEP], [CLS, SEP]]
    assert rows.tokens_lost.tolist() == [6, 0, 0]
    assert rows.own_starts.tolist() == [0, 0, 0]
    assert rows.own_ends.tolist() == rows.lengths.tolist()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("truncate", [CLS, 0, 1, 2, SEP, 8, 9, SEP]),
        ("tail", [CLS, 5, 6, 7, SEP, 12, 13, SEP]),
        ("head_tail", [CLS, 5, 6, 7, SEP, 12, 13, SEP]),
    ],
)
def test_pairs_share_the_row_by_the_official_rule(policy, expected):
    rows, _ = lay_out(policy, 8, [(8, 6)])
    assert ids_of(rows) == [expected]
    assert rows.type_starts.tolist() == [5]
    assert rows.tokens_lost.tolist() == [9]


def test_error_names_the_first_example_that_does_not_fit():
    with pytest.raises(InputError, match="example 1 has 7 pieces"):
        lay_out("error", 6, [(4, 0), (5, 2), (9, 0)])
    rows, _ = lay_out("error", 6, [(4, 0), (1, 2)])
    assert ids_of(rows) == [[CLS, 0, 1, 2, 3, SEP], [CLS, 4, SEP, 5, 6, SEP]]


@pytest.mark.parametrize("stride", [None, 1, 2, 5, 7])
@pytest.mark.parametrize("length", [8, 9, 10, 15, 16, 33])
def test_windows(length, stride):
    """Every piece is in a window, and its own in the one with the most context."""
    rows, _ = lay_out("window", 10, [(length, 0)], stride=stride)
    windows = [row[1:-1] for row in ids_of(rows)]
    assert all(row[0] == CLS and row[-1] == SEP for row in ids_of(rows))
    for window in windows:
        assert window == list(range(window[0], window[0] + min(8, length)))
    assert windows[-1][-1] == length - 1
    begins = [window[0] for window in windows]
    assert begins[:-1] == list(range(0, length, stride or 4))[: len(begins) - 1]
    assert rows.num_windows.tolist() == [len(begins)] * len(begins)
    assert rows.tokens_lost.sum() == 0

    owner = {}
    for number, (row, start, stop) in enumerate(
        zip(ids_of(rows), rows.own_starts, rows.own_ends, strict=True)
    ):
        for piece in row[start:stop]:
            if piece >= 0:
                assert piece not in owner
                owner[piece] = number
    assert sorted(owner) == list(range(length))
    for piece in range(length):  # as run_squad.py decides, ties to the earlier window
        contexts = [
            min(piece - w[0], w[-1] - piece) if w[0] <= piece <= w[-1] else -1 for w in windows
        ]
        assert owner[piece] == contexts.index(max(contexts))


def own_tokens(rows):
    parts = zip(ids_of(rows), rows.own_starts, rows.own_ends, strict=True)
    return list(itertools.chain.from_iterable(row[start:stop] for row, start, stop in parts))


def test_own_tokens_of_windows_are_the_whole_example_once():
    rows, _ = lay_out("window", 10, [(20, 0), (3, 0), (14, 2), (2, 15)])
    a, b = list(range(23, 37)), [37, 38]
    c, d = [39, 40], list(range(41, 56))
    wanted = [CLS, *range(20), SEP, CLS, 20, 21, 22, SEP]
    wanted += [CLS, *a, SEP, *b, SEP, CLS, *c, SEP, *d, SEP]
    assert own_tokens(rows) == wanted
    assert rows.tokens_lost.sum() == 0
    for row, type_start in zip(ids_of(rows), rows.type_starts, strict=True):
        assert len(row) <= 10
        assert row[type_start - 1] == SEP


def test_of_a_pair_of_two_long_texts_the_shorter_one_is_cut_to_half_the_room():
    rows, _ = lay_out("window", 11, [(30, 10)])
    assert all(row[-5:] == [30, 31, 32, 33, SEP] for row in ids_of(rows))
    assert rows.tokens_lost.tolist() == [6] + [0] * (len(rows.lengths) - 1)
    assert own_tokens(rows) == [CLS, *range(30), SEP, *range(30, 34), SEP]


@pytest.mark.parametrize("seed", range(20))
def test_every_word_is_whole_in_a_window(seed):
    """Whatever the words, as long as each fits a window."""
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(0, 9, rng.integers(1, 20)) for _ in range(6)]
    words = words_of(lengths)
    rows, words_table = lay_out("window", 10, [(int(w.sum()), 0) for w in lengths], words=words)
    split = np.cumsum(rows.lengths)[:-1]
    by_row = list(zip(ids_of(rows), np.split(rows.word_indices, split), strict=True))
    for example, (of_example, table) in enumerate(
        zip(lengths, tables_of(words_table), strict=True)
    ):
        mine = [by_row[i] for i in np.flatnonzero(rows.examples == example)]
        np.testing.assert_array_equal(table.all_pieces, of_example)
        np.testing.assert_array_equal(table.num_pieces, of_example)
        offset = sum(int(w.sum()) for w in lengths[:example])
        for word, count in enumerate(of_example):
            pieces = list(range(offset, offset + count))
            offset += count
            if not count:
                assert table.windows[word] == -1
                continue
            ids, indices = mine[table.windows[word]]
            got = [i for i, w in zip(ids, indices, strict=True) if w == table.slots[word]]
            assert got == pieces


@pytest.mark.parametrize(
    ("policy", "num_pieces"),
    [("truncate", [2, 2, 0, 0]), ("tail", [0, 0, 1, 3]), ("head_tail", [1, 0, 0, 3])],
)
def test_words_that_are_cut(policy, num_pieces):
    rows, table = lay_out(policy, 6, [(10, 0)], words=words_of([[2, 3, 2, 3]]))
    assert table.num_pieces.tolist() == num_pieces
    assert table.all_pieces.tolist() == [2, 3, 2, 3]
    assert table.part_units.tolist() == np.flatnonzero(num_pieces).tolist()
    numbers = [i for i in rows.word_indices.tolist() if i >= 0]
    assert numbers[0] == 0
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("settings", "copies"),
    [(("window", 10, 3), 3), (("window", 10, 4), 2), (("window", 11), 3), (("truncate", 10), 1)],
)
def test_the_rows_that_a_piece_may_stand_in(settings, copies):
    """Of 8 pieces those at 6 and 7 are in the windows from 0, 3 and 6 on."""
    assert LongText(*settings).max_copies == copies


@pytest.mark.parametrize("seq_length", [3, 4])
def test_windows_too_short_for_a_pair_are_refused(seq_length):
    with pytest.raises(InputError, match="at least 5"):
        lay_out("window", seq_length, [(2, 5)])
    assert own_tokens(lay_out("window", 5, [(2, 5)])[0]) == [CLS, 0, SEP, *range(2, 7), SEP]


def official_truncation(length_a, length_b, seq_length):
    """_truncate_seq_pair of the official script, one token at a time."""
    limit = seq_length - (3 if length_b else 2)
    while length_a + length_b > limit:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    return length_a, length_b


def test_truncation_is_the_official_one():
    for a in range(15):
        for b in range(15):
            for seq_length in range(3, 24):
                assert kept_lengths(a, b, seq_length) == official_truncation(a, b, seq_length)
                # RoBERTa's second [SEP] between the texts takes one more place.
                fewer = official_truncation(a, b, seq_length) if b else (min(a, seq_length - 1), 0)
                assert kept_lengths(a, b, seq_length + 1, separators=2) == fewer
