"""Rows: first planned as runs of pieces, then as columns.

Shape legend: `N` examples, `P` pieces of all their texts, `R` rows, `T` tokens of all rows. Texts
are numbered 2 * i for text_a and 2 * i + 1 for text_b of example i; a missing text has no pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from bert_features.batches.words import PieceRuns

# The runs of a row: [CLS], head and tail of text_a, [SEP], head and tail of text_b, [SEP].
CLS, A, A_TAIL, SEP_A, B, B_TAIL, SEP_B = range(7)


@dataclass(frozen=True)
class Texts:
    """The texts to lay out.

    Attributes:
      lengths: int64 [2 * N], number of pieces of each text.
      words: the words, where their vectors are wanted.
      name: names the i-th example to the user.
    """

    lengths: np.ndarray
    words: PieceRuns | None
    name: Callable[[int], str]

    @cached_property
    def starts(self) -> np.ndarray:
        """int64 [2 * N], where each text begins among the P pieces."""
        starts: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return starts


@dataclass(frozen=True)
class RowPlan:
    """Rows as runs of pieces.

    Attributes:
      examples: int64 [R], the number of each row's example.
      starts: int64 [R, 7], where each run begins among the P pieces, [CLS] and [SEP].
      lengths: int64 [R, 7], number of pieces of each run.
      own: int64 [R, 2], the first of the row's own tokens, and one past the last.
    """

    examples: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    own: np.ndarray

    def take(self, rows: np.ndarray) -> "RowPlan":
        """Some rows, by their numbers."""
        return RowPlan(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence["RowPlan"]) -> "RowPlan":
        """The rows of several plans, one plan after the other."""
        return cls(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            )
        )


@dataclass(frozen=True)
class Rows:
    """The rows of several examples.

    Attributes:
      values: int32 [T], the ids of all rows, one row after the other.
      word_indices: int32 [T], the number of each token's word in its row, or -1.
      lengths: int64 [R], number of tokens.
      examples: int64 [R], the number of each row's example among the N.
      window: int32 [R], the number of each row among its example's.
      num_windows: int32 [R], number of rows of its example.
      type_starts: int32 [R], where text_b begins.
      own_starts: int32 [R], the first token taken from this row, not from another window that
        holds it too.
      own_ends: int32 [R], one past the last such token.
      tokens_lost: int32 [R], pieces of the example that are in no row, at its first row; else 0.
      pieces: int64 [T], the number of each token's piece among the P; of [CLS] and [SEP] P or more.
      span_begins: int32 [T], for spans, see `spans.place_spans`.
      span_ends: int32 [T], the same.
      target_ids: int32 [T], for scores: the id of the masked piece that is scored, else -1.
      attended: int32 [T], for late interaction: 1 where other tokens attend to the token.
      scored: int32 [T], the same: 1 where the token has a vector.
    """

    values: np.ndarray
    word_indices: np.ndarray
    lengths: np.ndarray
    examples: np.ndarray
    window: np.ndarray
    num_windows: np.ndarray
    type_starts: np.ndarray
    own_starts: np.ndarray
    own_ends: np.ndarray
    tokens_lost: np.ndarray
    pieces: np.ndarray
    span_begins: np.ndarray | None = None
    span_ends: np.ndarray | None = None
    target_ids: np.ndarray | None = None
    attended: np.ndarray | None = None
    scored: np.ndarray | None = None

    @cached_property
    def starts(self) -> np.ndarray:
        """int64 [R], where each row begins among the tokens."""
        starts: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return starts

    @cached_property
    def row_of_token(self) -> np.ndarray:
        """int64 [T]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def place(self) -> np.ndarray:
        """int64 [T], the number of each token in its row."""
        place: np.ndarray = np.arange(len(self.values)) - self.starts[self.row_of_token]
        return place

    @property
    def is_own(self) -> np.ndarray:
        """Bool [T], whether a token is taken from this row, see `own_starts`."""
        row = self.row_of_token
        is_own: np.ndarray = (self.place >= self.own_starts[row]) & (
            self.place < self.own_ends[row]
        )
        return is_own


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, …, start + length - 1 of each range, one range after the other."""
    begins = np.cumsum(lengths) - lengths
    indices: np.ndarray = np.arange(int(lengths.sum())) + np.repeat(starts - begins, lengths)
    return indices


def count_by_row(values: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """The sum of each row, of bool how many are true: [T], splits int64 [R + 1] -> int64 [R]."""
    before = np.concatenate([[0], np.cumsum(values)])
    counts: np.ndarray = np.diff(before[splits])
    return counts
