"""Batches and records of features, which extraction produces, writers take and readers return.

Dimensions: `N` and `M` examples, `T` real tokens of all examples ([CLS] and [SEP] included, padding
excluded), `W` words of all examples, `P` pairs of tokens, or of words, of all examples, `D` width
of a feature.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from bert_features.config.features import Feature as Feature
from bert_features.config.levels import LEVELS, TEXT

# The columns of `WordSpans`, in order.
SPANS = tuple(name for name, dtype in LEVELS["word"].columns.items() if dtype != TEXT)

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
class Rows(ShortRepr):
    """Columns with an entry for each token, each word, or each pair of these, of several examples.

    Attributes:
      splits: int64 [N + 1]; the entries of example i lie at splits[i]:splits[i + 1].
      columns: name -> [T], text as str of dtype object. For tokens: `tokens` and `token_ids` int32
        (not from JSON lines, which have none).
        For words: `words`, as in the input; `word_starts` and `word_ends` int32, the first
        character of each word in its text and the position after its last one, -1 where the input
        is a list of words; `word_type_ids` int32, 1 for the words of text_b; and `word_num_pieces`
        int32, the pieces that the vector was made from. With 0 the vector is zero: cleaning removed
        the word, or truncation cut it off.
      features: the features of the level, whose names are free in memory: name -> [T, D].
    """

    splits: np.ndarray
    columns: dict[str, np.ndarray]
    features: dict[str, np.ndarray] = field(default_factory=dict)

    def part(self, start: int, stop: int) -> "Rows":
        """Examples start:stop; the arrays are views."""
        splits = np.asarray(self.splits[start : stop + 1])
        rows = slice(int(splits[0]), int(splits[-1]))
        return self._each(splits - splits[0], rows)

    def take(self, places: np.ndarray) -> "Rows":
        """The examples at some places, int64 [M], which may repeat; a copy."""
        lengths = np.diff(self.splits)[places]
        splits = splits_of(lengths)
        rows = np.arange(splits[-1]) + np.repeat(self.splits[places] - splits[:-1], lengths)
        return self._each(splits, rows)

    def _each(self, splits: np.ndarray, rows: slice | np.ndarray) -> "Rows":
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Rows(splits, columns, {name: values[rows] for name, values in self.features.items()})

    @classmethod
    def join(cls, parts: "Sequence[Rows]") -> "Rows":
        """The examples of several parts, at least one."""
        lengths = np.concatenate([np.diff(part.splits) for part in parts])
        columns = join_columns([part.columns for part in parts])
        return cls(splits_of(lengths), columns, join_columns([part.features for part in parts]))


@dataclass(frozen=True, repr=False)
class WordSpans(ShortRepr):
    """The positions of the words of one example, and their pieces; see `Rows`.

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
      features: name -> [tokens, D], [words, D] or [D], by the feature's level; attention
        [D, tokens, tokens], for each of D heads from each token to each token, or
        [D, words, words], of the words that have pieces.
      tokens: its pieces, [CLS] and [SEP] included; None unless a feature is of tokens.
      token_ids: int32 [tokens]; None without tokens, or where the format (the official JSON lines)
        does not hold them.
      words: its words; None unless a feature is of words.
      word_labels: the label of each word, "" for none; None unless the file has labels.
      word_spans: positions of the words; None without words.
      units: the columns of each further level by name, int32 [units] or texts; None without any.
      offsets: the first character of each token in its text and the position after its last one;
        None for [CLS], [SEP] and the tokens of a prompt. Files do not hold them.
    """

    unique_id: int | str
    features: dict[str, np.ndarray]
    tokens: tuple[str, ...] | None = None
    token_ids: np.ndarray | None = None
    words: tuple[str, ...] | None = None
    word_labels: tuple[str, ...] | None = None
    word_spans: WordSpans | None = None
    units: dict[str, dict[str, Any]] | None = None
    offsets: tuple[tuple[int, int] | None, ...] | None = None

    def unit_names(self, level: str) -> tuple[str, ...]:
        """Its tokens, words, spans or terms, by the level of a feature, [units]; else empty."""
        column = next(iter(LEVELS[LEVELS[level].unit].columns), "")
        texts = {"tokens": self.tokens, "words": self.words, **(self.units or {}).get(level, {})}
        return texts.get(column) or ()


@dataclass(frozen=True, repr=False)
class FeatureBatch(ShortRepr):
    """The features of several examples in input order, as flat columns.

    This is the one form of results: the device's outputs are put together as such a batch, which is
    cut, joined, kept, sent and written, and readers of files return it again.

    Attributes:
      unique_ids: [N], int64, or str (dtype object) where the ids of the input are strings.
      sequence: the features with one vector for each example: name -> [N, D].
      levels: the units and the features of each other level that the batch has; of pairs the rows
        of one matrix after the other.
      counts: what a run counted of each example: name -> [N]. Only losses are written.
    """

    unique_ids: np.ndarray
    sequence: dict[str, np.ndarray] = field(default_factory=dict)
    levels: dict[str, Rows] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unique_ids)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The columns of all levels by name, the features among them, as a file has them."""
        rows = [level.columns for level in self.levels.values()]
        return {name: values for part in (*rows, self.features) for name, values in part.items()}

    @property
    def features(self) -> dict[str, np.ndarray]:
        """The features by name: [T, D], [W, D], [P, D] or [N, D], by the level."""
        rows = [level.features for level in self.levels.values()]
        return {name: values for part in (*rows, self.sequence) for name, values in part.items()}

    def with_features(self, values: Mapping[str, np.ndarray]) -> "FeatureBatch":
        """The same with other values of some features."""

        def changed(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {name: values.get(name, old) for name, old in features.items()}

        levels = {
            level: replace(rows, features=changed(rows.features))
            for level, rows in self.levels.items()
        }
        return replace(self, sequence=changed(self.sequence), levels=levels)

    def row_splits(self, feature: Feature) -> np.ndarray | None:
        """Where the vectors of each example begin and end, int64 [N + 1]; None for a sequence."""
        return None if feature.is_sequence else self.levels[feature.level].splits

    def part(self, start: int, stop: int) -> "FeatureBatch":
        """Examples start:stop; the arrays are views."""
        return self._each(lambda values: values[start:stop], lambda rows: rows.part(start, stop))

    def take(self, places: np.ndarray) -> "FeatureBatch":
        """The examples at some places, int64 [M], which may repeat; a copy."""
        return self._each(lambda values: values[places], lambda rows: rows.take(places))

    def copy(self) -> "FeatureBatch":
        """The same with copied arrays: the memory that they were views of can be freed."""
        return self.take(np.arange(len(self)))

    def _each(
        self, flat: Callable[[np.ndarray], np.ndarray], ragged: Callable[[Rows], Rows]
    ) -> "FeatureBatch":
        return FeatureBatch(
            flat(self.unique_ids),
            {name: flat(values) for name, values in self.sequence.items()},
            {level: ragged(rows) for level, rows in self.levels.items()},
            {name: flat(values) for name, values in self.counts.items()},
        )

    @classmethod
    def join(cls, parts: "Sequence[FeatureBatch]") -> "FeatureBatch":
        """The examples of several parts with the same columns; views where these are neighbours."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.unique_ids for part in parts]),
            join_columns([part.sequence for part in parts]),
            {level: Rows.join([part.levels[level] for part in parts]) for level in parts[0].levels},
            join_columns([part.counts for part in parts]),
        )

    def records(self, features: Sequence[Feature]) -> Iterator[FeatureRecord]:
        """The examples one by one, with these features; the arrays are views of the batch's."""
        splits = {level: rows.splits.tolist() for level, rows in self.levels.items()}
        arrays = self.features  # a feature may have the name of a column
        for i, unique_id in enumerate(self.unique_ids.tolist()):
            rows: dict[str, Any] = {
                level: slice(*ends[i : i + 2]) for level, ends in splits.items()
            }
            parts = self._units(rows)
            rows["sequence"] = rows["row"] = i
            values = {
                feature.name: arrays[feature.name][rows[feature.level]] for feature in features
            }
            values |= {f.name: matrices(values[f.name]) for f in features if f.is_paired}
            yield FeatureRecord(unique_id, values, **parts)

    def _units(self, rows: dict[str, slice]) -> dict[str, Any]:
        """What a record says of an example's tokens, words and other units, by their rows."""
        parts: dict[str, Any] = {}
        for level, places in rows.items():
            cells = {name: column[places] for name, column in self.levels[level].columns.items()}
            texts = {n: tuple(v.tolist()) for n, v in cells.items() if v.dtype == object}
            if level == "token":
                parts |= cells | texts
            elif level == "word":
                spans = WordSpans(*(cells[name] for name in SPANS))
                parts |= texts | {"word_spans": spans}
            elif cells:
                parts.setdefault("units", {})[level] = cells | texts
        return parts


def matrices(pairs: np.ndarray) -> np.ndarray:
    """The vectors of all pairs of an example, [S * S, D], as D matrices [S, S]; a view."""
    size = math.isqrt(len(pairs))
    return pairs.reshape(size, size, -1 if size else pairs.shape[1]).transpose(2, 0, 1)


def splits_of(lengths: Any) -> np.ndarray:
    """Where rows of these lengths begin and end: int64 [N + 1], from 0."""
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits


def join_columns(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The columns of several parts, one part after the other."""
    return {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    """Several arrays as one: a view where they are neighbouring rows of one array, else a copy."""
    arrays = [array for array in arrays if len(array)] or arrays[:1]
    first, base = arrays[0], arrays[0].base
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous:
        return np.concatenate(arrays)
    begin = end = _address(first)
    for array in arrays:
        alike = (array.dtype, array.shape[1:]) == (base.dtype, first.shape[1:])
        if array.base is not base or not (alike and array.flags.c_contiguous):
            return np.concatenate(arrays)
        if _address(array) != end:
            return np.concatenate(arrays)
        end += array.nbytes
    start, stop = ((at - _address(base)) // base.itemsize for at in (begin, end))
    return base.reshape(-1)[start:stop].reshape(-1, *first.shape[1:])


def _address(array: np.ndarray) -> int:
    """Where the values of an array begin in memory."""
    return int(array.__array_interface__["data"][0])
