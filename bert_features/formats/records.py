"""Batches and records of features, which extraction produces, writers take and readers return.

Dimensions: `N` examples, `T` real tokens of all examples ([CLS] and [SEP] included, padding
excluded), `W` words of all examples, `D` width of a feature.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bert_features.config.output_specs import (
    Feature as Feature,
)

# Entries of a list that a repr shows.
_MAX_SHOWN = 6


def describe_array(array: np.ndarray) -> str:
    """The dtype and the shape of an array, as `float32 [12, 384]`."""
    return f"{array.dtype} {list(array.shape)}"


class ShortRepr:
    """A repr of one line: the fields that are not None, arrays by dtype and shape, the rest cut."""

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        shown = [f"{name}={_describe(v)}" for name, v in values.items() if v is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return describe_array(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_describe(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple) and len(value) > _MAX_SHOWN:
        first = ", ".join(map(repr, value[:_MAX_SHOWN]))
        return f"[{first}, … {len(value)} in all]"
    return repr(value)


@dataclass(frozen=True, repr=False)
class Tokens(ShortRepr):
    """The tokens of several examples.

    Attributes:
      row_splits: int64 [N + 1]; those of example i lie at row_splits[i]:row_splits[i + 1].
      pieces: T pieces.
      ids: int32 [T], their vocabulary ids.
    """

    row_splits: np.ndarray
    pieces: list[str]
    ids: np.ndarray


@dataclass(frozen=True, repr=False)
class Words(ShortRepr):
    """The words of several examples.

    Attributes:
      row_splits: int64 [N + 1]; those of example i lie at row_splits[i]:row_splits[i + 1].
      words: W words, as in the input.
      starts: int32 [W], position of the first character of each word in its text; -1 where the
        input is a list of words.
      ends: int32 [W], position after its last character, or -1.
      type_ids: int32 [W]: 1 for the words of text_b, else 0.
      num_pieces: int32 [W], number of pieces that the vector was made from. With 0 the vector is
        zero: cleaning removed the word, or truncation cut it off.
    """

    row_splits: np.ndarray
    words: list[str]
    starts: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray


@dataclass(frozen=True, repr=False)
class WordSpans(ShortRepr):
    """The positions of the words of one example, and their pieces; see `Words`.

    Attributes:
      starts: int32 [words].
      ends: int32 [words].
      type_ids: int32 [words].
      num_pieces: int32 [words].
    """

    starts: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray


@dataclass(frozen=True, repr=False)
class FeatureRecord(ShortRepr):
    """The features of one example.

    Attributes:
      unique_id: the example's own id, or its number in the input, from 0.
      features: name -> [tokens, D], [words, D] or [D], by the feature's level.
      tokens: its pieces, [CLS] and [SEP] included; None unless a feature is of tokens.
      token_ids: int32 [tokens]; None without tokens, or where the format (the official JSON lines)
        does not hold them.
      words: its words; None unless a feature is of words.
      word_spans: positions of the words; None without words.
    """

    unique_id: int | str
    features: dict[str, np.ndarray]
    tokens: tuple[str, ...] | None = None
    token_ids: np.ndarray | None = None
    words: tuple[str, ...] | None = None
    word_spans: WordSpans | None = None


@dataclass(frozen=True, repr=False)
class FeatureBatch(ShortRepr):
    """The features of several examples in input order, as flat columns.

    Attributes:
      unique_ids: [N], int64, or str (dtype object) where the ids of the input are strings.
      features: name -> [T, D], [W, D] or [N, D], by the feature's level.
      tokens: present if and only if a feature is of tokens.
      words: present if and only if a feature is of words.
    """

    unique_ids: np.ndarray
    features: dict[str, np.ndarray]
    tokens: Tokens | None = None
    words: Words | None = None

    def __len__(self) -> int:
        return len(self.unique_ids)

    def row_splits(self, feature: Feature) -> np.ndarray | None:
        """Where the vectors of each example begin and end, int64 [N + 1]; None for a sequence."""
        if feature.level == "sequence":
            return None
        level = self.tokens if feature.level == "token" else self.words
        assert level is not None
        return level.row_splits

    def rows(self, feature: Feature, example: int) -> Any:
        """The index of one example's part of a feature: a slice, or its number for a sequence."""
        splits = self.row_splits(feature)
        if splits is None:
            return example
        return slice(int(splits[example]), int(splits[example + 1]))

    def records(self, features: tuple[Feature, ...]) -> Iterator[FeatureRecord]:
        """The same examples one by one; the arrays are views of the batch's."""
        for i, unique_id in enumerate(self.unique_ids.tolist()):
            yield FeatureRecord(
                unique_id=unique_id,
                features={f.name: self.features[f.name][self.rows(f, i)] for f in features},
                **self._tokens_of(i),
                **self._words_of(i),
            )

    def _tokens_of(self, example: int) -> dict[str, Any]:
        if self.tokens is None:
            return {}
        row = slice(*self.tokens.row_splits[example : example + 2].tolist())
        return {"tokens": tuple(self.tokens.pieces[row]), "token_ids": self.tokens.ids[row]}

    def _words_of(self, example: int) -> dict[str, Any]:
        words = self.words
        if words is None:
            return {}
        row = slice(*words.row_splits[example : example + 2].tolist())
        spans = WordSpans(
            words.starts[row], words.ends[row], words.type_ids[row], words.num_pieces[row]
        )
        return {"words": tuple(words.words[row]), "word_spans": spans}
