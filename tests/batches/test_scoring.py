"""Rows for scores: which pieces are masked, and which tokens a row owns."""

from dataclasses import replace

import numpy as np
import pytest

from bert_features.batches.row_plan import Rows
from bert_features.batches.rows import rows_to_score

CLS, SEP, MASK = 2, 3, 4


def make_rows():
    """[CLS] 6 7 8 [SEP], where 7 and 8 are one word, and a row without pieces."""
    return Rows(
        values=np.array([CLS, 6, 7, 8, SEP, CLS, SEP], np.int32),
        word_indices=np.array([-1, 0, 1, 1, -1, -1, -1], np.int32),
        lengths=np.array([5, 2]),
        examples=np.array([0, 1]),
        window=np.zeros(2, np.int32),
        num_windows=np.ones(2, np.int32),
        type_starts=np.array([5, 2], np.int32),
        own_starts=np.zeros(2, np.int32),
        own_ends=np.array([5, 2], np.int32),
        tokens_lost=np.array([9, 0], np.int32),
        pieces=np.array([3, 0, 1, 2, 3, 3, 3]),
    )


@pytest.mark.parametrize("by_word", [False, True])
def test_each_piece_is_masked_in_a_row_of_its_own(by_word):
    rows = rows_to_score(make_rows(), MASK, [CLS, SEP], by_word=by_word)
    assert rows.lengths.tolist() == [5, 5, 5, 2]
    assert rows.values.tolist() == [
        *(CLS, MASK, 7, 8, SEP),
        *(CLS, 6, MASK, MASK if by_word else 8, SEP),
        *(CLS, 6, 7, MASK, SEP),
        *(CLS, SEP),
    ]
    assert rows.target_ids.tolist() == [
        *(-1, 6, -1, -1, -1),
        *(-1, -1, 7, -1, -1),
        *(-1, -1, -1, 8, -1),
        *(-1, -1),
    ]
    assert list(zip(rows.own_starts, rows.own_ends, strict=True)) == [
        (0, 2),
        (2, 3),
        (3, 5),
        (0, 2),
    ]
    assert rows.window.tolist() == [0, 1, 2, 0]
    assert rows.num_windows.tolist() == [3, 3, 3, 1]
    assert rows.examples.tolist() == [0, 0, 0, 1]
    assert rows.tokens_lost.tolist() == [9, 0, 0, 0]


def test_windows_that_overlap_mask_each_piece_once():
    """[CLS] 6 7 8 [SEP] and [CLS] 7 8 9 [SEP]: the first owns 6 and 7, the second 8 and 9."""
    windows = replace(
        make_rows(),
        values=np.array([CLS, 6, 7, 8, SEP, CLS, 7, 8, 9, SEP], np.int32),
        word_indices=np.array([-1, 0, 1, 2, -1, -1, 1, 2, 3, -1], np.int32),
        lengths=np.array([5, 5]),
        examples=np.array([0, 0]),
        window=np.array([0, 1], np.int32),
        num_windows=np.array([2, 2], np.int32),
        type_starts=np.array([5, 5], np.int32),
        own_starts=np.array([0, 2], np.int32),
        own_ends=np.array([3, 5], np.int32),
        pieces=np.array([4, 0, 1, 2, 4, 4, 1, 2, 3, 4]),
    )
    rows = rows_to_score(windows, MASK, [CLS, SEP], by_word=False)
    assert rows.values.reshape(-1, 5).tolist() == [
        [CLS, MASK, 7, 8, SEP],
        [CLS, 6, MASK, 8, SEP],
        [CLS, 7, MASK, 9, SEP],
        [CLS, 7, 8, MASK, SEP],
    ]
    assert rows.target_ids[rows.target_ids >= 0].tolist() == [6, 7, 8, 9]
    assert list(zip(rows.own_starts, rows.own_ends, strict=True)) == [
        (0, 2),
        (2, 3),
        (2, 3),
        (3, 5),
    ]
    assert rows.window.tolist() == [0, 1, 2, 3]
    assert rows.num_windows.tolist() == [4] * 4
    assert rows.tokens_lost.tolist() == [9, 0, 0, 0]
