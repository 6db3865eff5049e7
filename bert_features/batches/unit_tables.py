"""UnitTable: the words or spans of several examples, and where their vectors are among the rows.

Shape legend: `N` examples, `T` tokens of all rows, `U` words or spans of all examples, `O` parts:
the tokens of one of them in one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from bert_features.batches.row_plan import Rows, count_by_row
from bert_features.batches.words import PieceRuns


@dataclass(frozen=True)
class UnitTable:
    """The words or spans of several examples, one example after the other.

    The vector of a word is taken from one row. A span has a part in each row that owns some of its
    tokens.

    Attributes:
      row_splits: int64 [N + 1]; the units of example i lie at row_splits[i]:row_splits[i + 1].
      starts: int32 [U], the first character in the text, or -1.
      ends: int32 [U], one past the last character, or -1.
      type_ids: int32 [U]: 1 for units of text_b.
      num_pieces: int32 [U], pieces that the vector is made of; 0 for a zero vector.
      all_pieces: int32 [U], pieces that the unit has; 0 if it vanished in cleaning, or is blank.
      part_units: int64 [O], ascending, the unit of each part.
      part_windows: int32 [O], the row of its example that it is in.
      part_slots: int32 [O], the number of its vector among those of that row.
      part_sizes: int32 [O], number of its tokens.
    """

    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray
    all_pieces: np.ndarray
    part_units: np.ndarray
    part_windows: np.ndarray
    part_slots: np.ndarray
    part_sizes: np.ndarray

    @classmethod
    def of(
        cls,
        rows: Rows,
        runs: PieceRuns,
        *,
        units: np.ndarray,
        part_rows: np.ndarray,
        slots: np.ndarray,
        sizes: np.ndarray,
    ) -> "UnitTable":
        """From the units, and the unit, row, slot and size of each part, int64 [O]."""
        num_pieces = np.zeros(len(runs.texts), np.int32)
        np.add.at(num_pieces, units, sizes)
        return cls(
            row_splits=np.searchsorted(runs.texts // 2, np.arange(int(rows.examples[-1]) + 2)),
            starts=runs.starts.astype(np.int32),
            ends=runs.ends.astype(np.int32),
            type_ids=(runs.texts % 2).astype(np.int32),
            num_pieces=num_pieces,
            all_pieces=runs.num_pieces.astype(np.int32),
            part_units=units,
            part_windows=rows.window[part_rows],
            part_slots=slots.astype(np.int32),
            part_sizes=sizes.astype(np.int32),
        )

    @classmethod
    def join(cls, tables: Sequence["UnitTable"]) -> "UnitTable":
        """The units of several tables."""
        before = np.cumsum([0, *(len(table.starts) for table in tables)])
        moved = [
            replace(t, row_splits=t.row_splits[1:] + n, part_units=t.part_units + n)
            for t, n in zip(tables, before, strict=False)
        ]
        first, *columns = (
            np.concatenate([getattr(table, field.name) for table in moved]) for field in fields(cls)
        )
        return cls(np.append(0, first), *columns)

    @property
    def whole(self) -> np.ndarray:
        """Bool [U]: whether a unit has pieces, all in a row."""
        is_whole: np.ndarray = (self.num_pieces > 0) & (self.num_pieces == self.all_pieces)
        return is_whole

    def counts(self) -> dict[str, np.ndarray]:
        """int64 [N]: `all` units of each example, and how many are `blank`, `cut` or `lost`.

        Blank ones have no pieces, cut ones lack some, and lost ones have lost all.
        """
        kept, every = self.num_pieces, self.all_pieces
        masks = {
            "blank": every == 0,
            "cut": (kept > 0) & (kept < every),
            "lost": (kept == 0) & (every > 0),
        }
        counts = {name: count_by_row(values, self.row_splits) for name, values in masks.items()}
        return {"all": np.diff(self.row_splits), **counts}


def place_words(rows: Rows, word_of_token: np.ndarray, words: PieceRuns) -> UnitTable:
    """Numbers the words of each row, in `rows.word_indices`, and finds the best row of each word.

    That row has the most pieces of the word, then the most own tokens, then it comes first.
    `word_of_token` is int64 [T], -1 for tokens of no word.
    """
    row_of_token = rows.row_of_token
    is_word = word_of_token >= 0
    changes = np.ones(len(word_of_token), bool)
    changes[1:] = (np.diff(word_of_token) != 0) | (np.diff(row_of_token) != 0)
    begins = np.flatnonzero(changes & is_word)
    # Occurrences: runs of tokens of one word in one row.
    word, row = word_of_token[begins], row_of_token[begins]
    numbers = np.arange(len(begins)) - np.searchsorted(row, row)
    occurrence = (np.cumsum(changes & is_word) - 1)[is_word]  # of each token of a word
    rows.word_indices[is_word] = numbers[occurrence]
    sizes = np.bincount(occurrence, minlength=len(begins))
    own = np.bincount(occurrence, rows.is_own[is_word], minlength=len(begins))
    order = np.lexsort((-row, own, sizes, word))
    best = order[np.flatnonzero(np.diff(word[order], append=-1))]
    return UnitTable.of(
        rows, words, units=word[best], part_rows=row[best], slots=numbers[best], sizes=sizes[best]
    )
