"""Finished examples: their features and what goes with them, as flat columns.

Shape legend: `N` and `M` examples, `T` tokens and `W` words of all examples, `D` width of an
output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from bert_features.batches.segments import expand_ranges
from bert_features.batches.words import word_strings
from bert_features.extraction.counts import CountsByExample
from bert_features.readers.input_example import InputExample

WORD_COLUMNS = ("starts", "ends", "type_ids", "num_pieces")


@dataclass(frozen=True)
class Finished:
    """Finished examples as flat columns, before they are cut into batches.

    Attributes:
      unique_ids: N ids.
      levels: the level of each feature.
      features: name -> [T, D], [W, D] or [N, D], by the level.
      token_ids: int32 [T].
      token_splits: int64 [N + 1].
      words: W words.
      word_columns: int32 [W] each, of `Words`.
      word_splits: int64 [N + 1].
    """

    unique_ids: list[int | str]
    levels: Mapping[str, str]
    features: dict[str, np.ndarray]
    token_ids: np.ndarray
    token_splits: np.ndarray
    words: list[str]
    word_columns: dict[str, np.ndarray]
    word_splits: np.ndarray

    def __len__(self) -> int:
        return len(self.unique_ids)

    def part(self, start: int, stop: int) -> Self:
        """Examples start:stop; arrays are views."""
        splits = {"token": self.token_splits, "word": self.word_splits}
        rows = {level: slice(int(s[start]), int(s[stop])) for level, s in splits.items()}
        rows["sequence"] = slice(start, stop)
        return replace(
            self,
            unique_ids=self.unique_ids[start:stop],
            features={name: v[rows[self.levels[name]]] for name, v in self.features.items()},
            token_ids=self.token_ids[rows["token"]],
            token_splits=self.token_splits[start : stop + 1] - self.token_splits[start],
            words=self.words[rows["word"]],
            word_columns={name: v[rows["word"]] for name, v in self.word_columns.items()},
            word_splits=self.word_splits[start : stop + 1] - self.word_splits[start],
        )

    def take(self, places: np.ndarray, unique_ids: list[int | str]) -> Self:
        """The examples at some places, int64 [M], which may repeat, under these ids; a copy."""
        rows = {"sequence": places}
        lengths = {}
        for level, splits in (("token", self.token_splits), ("word", self.word_splits)):
            lengths[level] = np.diff(splits)[places]
            rows[level] = expand_ranges(splits[places], lengths[level])
        return replace(
            self,
            unique_ids=unique_ids,
            features={name: v[rows[self.levels[name]]] for name, v in self.features.items()},
            token_ids=self.token_ids[rows["token"]],
            token_splits=splits_of([lengths["token"]]),
            words=[self.words[row] for row in rows["word"].tolist()],
            word_columns={name: v[rows["word"]] for name, v in self.word_columns.items()},
            word_splits=splits_of([lengths["word"]]),
        )

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The examples of several parts; a copy only if there are several."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            unique_ids=[unique_id for part in parts for unique_id in part.unique_ids],
            levels=parts[0].levels,
            features=_join_columns([part.features for part in parts]),
            token_ids=np.concatenate([part.token_ids for part in parts]),
            token_splits=_join_splits([part.token_splits for part in parts]),
            words=[word for part in parts for word in part.words],
            word_columns=_join_columns([part.word_columns for part in parts]),
            word_splits=_join_splits([part.word_splits for part in parts]),
        )


class Results(NamedTuple):
    """Finished examples and their counts."""

    finished: Finished
    counts: CountsByExample

    def take(self, places: np.ndarray, unique_ids: list[int | str]) -> "Results":
        """See `Finished.take`."""
        return Results(self.finished.take(places, unique_ids), self.counts.take(places, unique_ids))

    @classmethod
    def join(cls, parts: "Sequence[Results]") -> "Results":
        """The examples of several parts."""
        return cls(
            Finished.join([part.finished for part in parts]),
            CountsByExample.join([part.counts for part in parts]),
        )


def words_of(
    examples: Sequence[InputExample], columns: Mapping[str, np.ndarray], splits: np.ndarray
) -> list[str]:
    """The words of examples.

    Args:
      examples: N examples.
      columns: int32 [W] each, by the names of `WORD_COLUMNS`.
      splits: int64 [N + 1], where the words of each example begin.
    """
    words: list[str] = []
    bounds = splits.tolist()
    for i, example in enumerate(examples):
        rows = slice(bounds[i], bounds[i + 1])
        words += word_strings(
            example, columns["starts"][rows], columns["ends"][rows], columns["type_ids"][rows]
        )
    return words


def _join_columns(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _join_splits(parts: Sequence[np.ndarray]) -> np.ndarray:
    return splits_of([np.diff(splits) for splits in parts])


def splits_of(lengths: Sequence[np.ndarray]) -> np.ndarray:
    """Where each of several examples begins and ends, int64 [N + 1], from their lengths."""
    return np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)
