"""The flat columns of a features file, and conversions between columns, batches and records.

`N` examples, `T` tokens and `W` words of all examples, `D` width of a feature.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bert_features.formats.records import (
    Feature,
    FeatureBatch,
    FeatureRecord,
    Tokens,
    Words,
    WordSpans,
)

IdType = Literal["int", "str"]
ID_TYPES: tuple[str, ...] = get_args(IdType)
TEXT = "text"


class LevelColumns(NamedTuple):
    """How the tokens, or the words, of a file are laid out.

    Attributes:
      splits: the column that says where the tokens or words of each example begin and end.
      batch: the attribute of `FeatureBatch` that holds them.
      make: the type of that attribute.
      columns: the other columns: name -> (attribute of `make`, dtype).
    """

    splits: str
    batch: str
    make: type[Tokens] | type[Words]
    columns: dict[str, tuple[str, str]]


LEVELS: dict[str, LevelColumns] = {
    "token": LevelColumns(
        "row_splits", "tokens", Tokens, {"tokens": ("pieces", TEXT), "token_ids": ("ids", "int32")}
    ),
    "word": LevelColumns(
        "word_splits",
        "words",
        Words,
        {
            "words": ("words", TEXT),
            "word_starts": ("starts", "int32"),
            "word_ends": ("ends", "int32"),
            "word_type_ids": ("type_ids", "int32"),
            "word_num_pieces": ("num_pieces", "int32"),
        },
    ),
}

# Names that a feature cannot have: columns of some format, or names that HDF5 does not allow.
RESERVED_NAMES = frozenset(
    {"unique_id", "unique_ids", "metadata", ".", "..", ""}
    | {level.splits for level in LEVELS.values()}
    | {name for level in LEVELS.values() for name in level.columns}
)


class Column(NamedTuple):
    """One flat column.

    Attributes:
      rows: the unit of its entries: `token`, `word`, `sequence` (an entry for each example) or
        `splits` (one entry more than examples).
      dtype: NumPy's name of the dtype, or `text`.
      width: D of a feature, else None.
    """

    rows: str
    dtype: str
    width: int | None = None


def levels_of(features: Sequence[Feature]) -> list[str]:
    """The keys of `LEVELS` that at least one feature has."""
    return [level for level in LEVELS if any(feature.level == level for feature in features)]


def columns_of(features: Sequence[Feature], id_type: str) -> dict[str, Column]:
    """The flat columns of a file, in order."""
    columns = {"unique_ids": Column("sequence", TEXT if id_type == "str" else "int64")}
    for level in levels_of(features):
        columns[LEVELS[level].splits] = Column("splits", "int64")
        for name, (_, dtype) in LEVELS[level].columns.items():
            columns[name] = Column(level, dtype)
    return columns | {f.name: Column(f.level, f.dtype, f.width) for f in features}


def value_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a feature; bfloat16 comes from ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def convert_to_columns(batch: FeatureBatch, features: Sequence[Feature]) -> dict[str, Any]:
    """A batch as flat columns: arrays, and lists of text. Nothing is copied."""
    columns: dict[str, Any] = {"unique_ids": batch.unique_ids}
    for level in levels_of(features):
        layout = LEVELS[level]
        part = getattr(batch, layout.batch)
        columns[layout.splits] = part.row_splits
        columns |= {name: getattr(part, field) for name, (field, _) in layout.columns.items()}
    return columns | {f.name: batch.features[f.name] for f in features}


def convert_to_batch(columns: Mapping[str, Any], features: Sequence[Feature]) -> FeatureBatch:
    """The inverse of `convert_to_columns`."""
    parts: dict[str, Any] = {}
    for level in levels_of(features):
        layout = LEVELS[level]
        fields = {field: columns[name] for name, (field, _) in layout.columns.items()}
        parts[layout.batch] = layout.make(row_splits=columns[layout.splits], **fields)
    return FeatureBatch(
        unique_ids=columns["unique_ids"],
        features={f.name: columns[f.name] for f in features},
        **parts,
    )


def continue_splits(columns: dict[str, Any], totals: dict[str, int]) -> None:
    """Makes the splits of a batch continue those of the batches before it.

    Args:
      columns: the columns of the batch; each splits column is shifted and loses its first entry,
        which the batch before it has written.
      totals: number of tokens and words before the batch, by level; those of the batch are added.
    """
    for level, total in totals.items():
        splits = LEVELS[level].splits
        totals[level] = total + int(columns[splits][-1])
        columns[splits] = columns[splits][1:] + total


def cut_columns(
    columns: Mapping[str, Any], features: Sequence[Feature], start: int, stop: int
) -> dict[str, Any]:
    """Examples start:stop of flat columns, by taking a slice of each.

    `row_splits` and `word_splits` of the part begin at 0.
    """
    rows = {"sequence": slice(start, stop)}
    part: dict[str, Any] = {"unique_ids": columns["unique_ids"][start:stop]}
    for level in levels_of(features):
        layout = LEVELS[level]
        splits = np.asarray(columns[layout.splits][start : stop + 1])
        rows[level] = slice(int(splits[0]), int(splits[-1]))
        part[layout.splits] = splits - splits[0]
        part |= {name: columns[name][rows[level]] for name in layout.columns}
    return part | {f.name: columns[f.name][rows[f.level]] for f in features}


def cut_batch(
    batch: FeatureBatch, features: Sequence[Feature], start: int, stop: int
) -> FeatureBatch:
    """Examples start:stop of a batch; the arrays are views."""
    if (start, stop) == (0, len(batch)):
        return batch
    columns = convert_to_columns(batch, features)
    return convert_to_batch(cut_columns(columns, features, start, stop), features)


def copy_arrays(batch: FeatureBatch, features: Sequence[Feature]) -> FeatureBatch:
    """The same batch with copied arrays: the arrays they were views of can be freed."""
    columns = convert_to_columns(batch, features)
    copied = {
        name: values.copy() if isinstance(values, np.ndarray) else values
        for name, values in columns.items()
    }
    return convert_to_batch(copied, features)


def cumulate_bytes(
    splits: Mapping[str, np.ndarray], features: Sequence[Feature], examples: int
) -> np.ndarray:
    """Bytes of feature values before each example.

    Args:
      splits: the splits of each level, int64 [N + 1], which may begin at any number.
      features: the features of each example.
      examples: N.

    Returns:
      int64 [N + 1], from 0.
    """
    total = np.zeros(examples + 1, np.int64)
    for feature in features:
        rows = splits.get(feature.level, np.arange(examples + 1))
        total += (rows - rows[0]) * (feature.width * value_dtype(feature.dtype).itemsize)
    return total


def convert_ids(ids: Iterable[Any], id_type: str) -> np.ndarray:
    """Ids as an array: int64, or str of dtype object."""
    return np.array(list(ids), object if id_type == "str" else np.int64)


def join_records(
    records: Sequence[FeatureRecord], features: Sequence[Feature], id_type: str
) -> FeatureBatch:
    """Records as a batch; token ids that the format does not hold are -1."""
    columns: dict[str, Any] = {
        "unique_ids": convert_ids((record.unique_id for record in records), id_type)
    }
    for level in levels_of(features):
        columns |= _JOINED[level](records)
    for feature in features:
        columns[feature.name] = join_values(
            [record.features[feature.name] for record in records], feature
        )
    return convert_to_batch(columns, features)


def join_values(values: Sequence[np.ndarray], feature: Feature) -> np.ndarray:
    """The vectors of one feature of several examples: [T, D], [W, D] or [N, D]."""
    if not values:
        return np.empty((0, feature.width), value_dtype(feature.dtype))
    return np.stack(values) if feature.level == "sequence" else np.concatenate(values)


def convert_to_splits(lengths: Sequence[int]) -> np.ndarray:
    """Where rows of these lengths begin and end: int64 [N + 1], from 0."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def find_parts(splits: np.ndarray, wanted: range) -> Iterator[tuple[int, int, int]]:
    """The parts of a whole that hold some of the wanted records.

    Args:
      splits: int64 [parts + 1]: where each part begins, and where the last one ends.
      wanted: numbers of records in the whole.

    Yields:
      The number of a part, and where the wanted records begin and end in it. A part without any is
      left out.
    """
    if not wanted:
        return
    first = int(np.searchsorted(splits, wanted.start, side="right")) - 1
    for part in range(first, len(splits) - 1):
        begin, end = (int(bound) for bound in splits[part : part + 2])
        if begin >= wanted.stop:
            return
        if begin < end:
            yield part, max(wanted.start - begin, 0), min(wanted.stop, end) - begin


def _join_tokens(records: Sequence[FeatureRecord]) -> dict[str, Any]:
    tokens = [record.tokens or () for record in records]
    ids = [
        np.full(len(record.tokens or ()), -1, np.int32)
        if record.token_ids is None
        else record.token_ids
        for record in records
    ]
    return {
        "row_splits": convert_to_splits([len(row) for row in tokens]),
        "tokens": list(chain.from_iterable(tokens)),
        "token_ids": _join_integers(ids),
    }


def _join_words(records: Sequence[FeatureRecord]) -> dict[str, Any]:
    words = [record.words or () for record in records]
    spans: list[WordSpans] = [r.word_spans for r in records if r.word_spans is not None]
    return {
        "word_splits": convert_to_splits([len(row) for row in words]),
        "words": list(chain.from_iterable(words)),
        **{
            name: _join_integers([getattr(span, field) for span in spans])
            for name, (field, dtype) in LEVELS["word"].columns.items()
            if dtype != TEXT
        },
    }


def _join_integers(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32, copy=False)


_JOINED = {"token": _join_tokens, "word": _join_words}
