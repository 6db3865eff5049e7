"""WordTable: the words of several examples, and where their vectors are found among the rows.

Shape legend: `N` examples, `T` tokens of all rows, `W` words of all examples, `O` occurrences: runs
of tokens of one word in one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from bert_features.batches.row_plan import Rows, count_by_row
from bert_features.batches.words import WordPieces


@dataclass(frozen=True)
class WordTable:
    """The words of several examples, one example after the other.

    Attributes:
      row_splits: int64 [N + 1]; the words of example i lie at row_splits[i]:row_splits[i + 1].
      starts: int32 [W], the first character in the text, or -1.
      ends: int32 [W], one past the last character, or -1.
      type_ids: int32 [W]: 1 for words of text_b.
      num_pieces: int32 [W], pieces that the vector is made of; 0 for a zero vector.
      all_pieces: int32 [W], pieces that the word has; 0 if it vanished in cleaning.
      windows: int32 [W], the row of its example that the vector is taken from; -1 for none.
      indices: int32 [W], its number among the words of that row.
    """

    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray
    all_pieces: np.ndarray
    windows: np.ndarray
    indices: np.ndarray

    @classmethod
    def join(cls, tables: Sequence["WordTable"]) -> "WordTable":
        """The words of several tables."""
        lengths = [np.diff(table.row_splits) for table in tables]
        return cls(
            np.concatenate([[0], *lengths]).cumsum(dtype=np.int64),
            *(
                np.concatenate([getattr(table, field.name) for table in tables])
                for field in fields(cls)[1:]
            ),
        )

    @property
    def whole(self) -> np.ndarray:
        """Bool [W]: whether a word has pieces, all in a row."""
        is_whole: np.ndarray = (self.num_pieces > 0) & (self.num_pieces == self.all_pieces)
        return is_whole

    def counts(self) -> dict[str, np.ndarray]:
        """How many words each example has, int64 [N]: `words`, `words_vanished`, `words_lost`."""
        vanished = self.all_pieces == 0
        lost = (self.num_pieces == 0) & ~vanished
        return {
            "words": np.diff(self.row_splits),
            "words_vanished": count_by_row(vanished, self.row_splits),
            "words_lost": count_by_row(lost, self.row_splits),
        }


@dataclass(frozen=True)
class _Occurrences:
    """Runs of tokens of one word in one row.

    Attributes:
      words: int64 [O], the word of each.
      rows: int64 [O], its row.
      numbers: int64 [O], its number among the words of the row.
      sizes: int64 [O], number of its tokens.
      own: float64 [O], number of its tokens that are the row's own.
    """

    words: np.ndarray
    rows: np.ndarray
    numbers: np.ndarray
    sizes: np.ndarray
    own: np.ndarray

    def best(self) -> np.ndarray:
        """int64, for each word with an occurrence the best one.

        It has the most pieces of the word, then the most own tokens, then it comes first.
        """
        order = np.lexsort((-self.rows, self.own, self.sizes, self.words))
        best: np.ndarray = order[np.flatnonzero(np.diff(self.words[order], append=-1))]
        return best


def place_words(
    rows: Rows, word_of_token: np.ndarray, words: WordPieces, *, num_examples: int
) -> WordTable:
    """Numbers the words of each row, in `rows.word_indices`, and finds the best row of each word.

    `word_of_token` is int64 [T], -1 for tokens of no word.
    """
    found = _find_occurrences(rows, word_of_token)
    best = found.best()
    count = len(words.texts)
    windows = np.full(count, -1, np.int32)
    indices, num_pieces = np.zeros(count, np.int32), np.zeros(count, np.int32)
    windows[found.words[best]] = rows.window[found.rows[best]]
    indices[found.words[best]] = found.numbers[best]
    num_pieces[found.words[best]] = found.sizes[best]
    return WordTable(
        row_splits=np.searchsorted(words.texts, 2 * np.arange(num_examples + 1)),
        starts=words.starts.astype(np.int32),
        ends=words.ends.astype(np.int32),
        type_ids=(words.texts % 2).astype(np.int32),
        num_pieces=num_pieces,
        all_pieces=words.num_pieces.astype(np.int32),
        windows=windows,
        indices=indices,
    )


def _find_occurrences(rows: Rows, word_of_token: np.ndarray) -> _Occurrences:
    """The occurrences of words in the rows; writes their numbers to `rows.word_indices`."""
    row_of_token = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
    is_word = word_of_token >= 0
    changes = np.ones(len(word_of_token), bool)
    changes[1:] = (np.diff(word_of_token) != 0) | (np.diff(row_of_token) != 0)
    begins = np.flatnonzero(changes & is_word)
    row = row_of_token[begins]
    numbers = np.arange(len(begins)) - np.searchsorted(row, row)
    occurrence = (np.cumsum(changes & is_word) - 1)[is_word]  # of each token of a word
    rows.word_indices[is_word] = numbers[occurrence]

    row_starts = np.cumsum(rows.lengths) - rows.lengths
    place = np.arange(len(word_of_token)) - row_starts[row_of_token]
    is_own = (place >= rows.own_starts[row_of_token]) & (place < rows.own_ends[row_of_token])
    return _Occurrences(
        words=word_of_token[begins],
        rows=row,
        numbers=numbers,
        sizes=np.bincount(occurrence, minlength=len(begins)),
        own=np.bincount(occurrence, is_own[is_word], minlength=len(begins)),
    )
