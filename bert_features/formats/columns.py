"""The flat columns of a features file, and conversions between columns, batches and records.

`N` examples, `T` tokens, `W` words and `P` pairs of all examples, `D` width of a feature.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bert_features.config.levels import LEVELS, TEXT
from bert_features.formats.records import (
    Feature,
    FeatureBatch,
    Rows,
)

IdType = Literal["int", "str"]
ID_TYPES: tuple[str, ...] = get_args(IdType)

# Names that a feature cannot have: columns of some format, or names that HDF5 does not allow.
RESERVED_NAMES = frozenset(
    {"unique_id", "unique_ids", "metadata", ".", "..", ""}.union(
        *((row.splits, *row.columns) for row in LEVELS.values())
    )
)


class Column(NamedTuple):
    """One flat column.

    Attributes:
      rows: the unit of its entries: a level (of `sequence` an entry for each example) or `splits`
        (one entry more than examples).
      dtype: NumPy's name of the dtype, or `text`.
      width: D of a feature, else None.
    """

    rows: str
    dtype: str
    width: int | None = None


def levels_of(features: Sequence[Feature]) -> list[str]:
    """The levels with splits that at least one feature has, and the units' levels of pairs."""
    levels = {level for feature in features for level in (feature.level, feature.unit)}
    return [level for level, row in LEVELS.items() if row.splits and level in levels]


def unit_columns(level: str, features: Sequence[Feature]) -> dict[str, str]:
    """The columns of a level's units that a file with these features has, and their dtypes."""
    labelled = any(feature.labelled for feature in features if feature.unit == level)
    return LEVELS[level].columns_of(labelled=labelled)


def level_of_columns(features: Sequence[Feature]) -> dict[str, str]:
    """The level of each column with splits that a file may have, by its name."""
    columns = {name: level for level, row in LEVELS.items() for name in row.columns}
    return columns | {f.name: f.level for f in features if not f.is_sequence}


def columns_of(features: Sequence[Feature], id_type: str) -> dict[str, Column]:
    """The flat columns of a file, in order."""
    columns = {"unique_ids": Column("sequence", TEXT if id_type == "str" else "int64")}
    for level in levels_of(features):
        columns[LEVELS[level].splits] = Column("splits", "int64")
        dtypes = unit_columns(level, features)
        columns |= {name: Column(level, dtype) for name, dtype in dtypes.items()}
    return columns | {
        f.name: Column(
            "sequence" if f.is_sequence else f.level, value_dtype(f.dtype).name, f.stored_width
        )
        for f in features
    }


def value_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a feature; bfloat16 comes from ml_dtypes, and bits lie in bytes."""
    if name != "bfloat16":
        return np.dtype("uint8" if name == "binary" else name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def convert_to_columns(batch: FeatureBatch) -> dict[str, np.ndarray]:
    """A batch as the flat columns of a file. Nothing is copied."""
    columns = {"unique_ids": batch.unique_ids, **batch.columns}
    return columns | {LEVELS[level].splits: rows.splits for level, rows in batch.levels.items()}


def convert_to_batch(columns: Mapping[str, Any], features: Sequence[Feature]) -> FeatureBatch:
    """The inverse of `convert_to_columns`, for all columns or some of them.

    A column may be anything that has slices: then it is read where the batch is cut. Without
    `unique_ids` the examples are numbered.
    """

    def features_at(level: str) -> dict[str, Any]:
        names = [feature.name for feature in features if feature.level == level]
        return {name: columns[name] for name in names if name in columns}

    rows = {
        level: Rows(
            columns[row.splits],
            {name: columns[name] for name in row.columns if name in columns},
            features_at(level),
        )
        for level, row in LEVELS.items()
        if row.splits in columns
    }
    sequence = features_at("sequence") | features_at("row")
    lengths = [len(part.splits) - 1 for part in rows.values()] + list(map(len, sequence.values()))
    ids = columns["unique_ids"] if "unique_ids" in columns else np.arange(lengths[0])
    return FeatureBatch(ids, sequence, rows)


def check_columns(columns: Mapping[str, Any], expected: Mapping[str, Column]) -> int:
    """The number of records; raises ValueError or KeyError for columns that do not fit together."""
    records = len(columns["unique_ids"])
    rows = {"sequence": records, "splits": records + 1}
    rows |= {
        level: int(columns[row.splits][-1])
        for level, row in LEVELS.items()
        if row.splits in expected
    }
    for name, (unit, dtype, width) in expected.items():
        column = columns[name]
        shape = (rows[unit],) if width is None else (rows[unit], width)
        if width is None:  # texts have another dtype in each format
            is_alike = column.dtype.kind in ("OU" if dtype == TEXT else "iu")
        else:
            is_alike = column.dtype == value_dtype(dtype)
        if column.shape != shape or not is_alike:
            raise ValueError(
                f"column {name} is {column.dtype} {column.shape}, expected {dtype} {shape}"
            )
    return records


def cumulate_bytes(
    splits: Mapping[str, np.ndarray], features: Sequence[Feature], examples: int
) -> np.ndarray:
    """Bytes of feature values before each of N examples, int64 [N + 1], from 0.

    The splits of each level, int64 [N + 1], may begin at any number.
    """
    total = np.zeros(examples + 1, np.int64)
    for feature in features:
        rows = splits.get(feature.level, np.arange(examples + 1))
        total += (rows - rows[0]) * (feature.stored_width * value_dtype(feature.dtype).itemsize)
    return total


def convert_ids(ids: Iterable[Any], id_type: str) -> np.ndarray:
    """Ids as an array: int64, or str of dtype object."""
    return np.array(list(ids), object if id_type == "str" else np.int64)


def bytes_of(values: np.ndarray) -> memoryview:
    """The bytes of an array in C order, without a copy where they lie in that order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Values as an array of dtype object [N]; arrays of one shape are kept apart, not stacked."""
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells


def text_array(texts: Iterable[str]) -> np.ndarray:
    """Texts as an array of dtype object."""
    return np.array(list(texts), object)


def find_parts(splits: np.ndarray, records: range) -> Iterator[tuple[int, int, int]]:
    """The number of each part with some of these records, and where these begin and end in it.

    `splits` are int64 [parts + 1]: where each part begins in the whole, and where the last one
    ends.
    """
    if not records:
        return
    first = int(np.searchsorted(splits, records.start, side="right")) - 1
    for part in range(first, len(splits) - 1):
        begin, end = (int(bound) for bound in splits[part : part + 2])
        if begin >= records.stop:
            return
        if begin < end:
            yield part, max(records.start - begin, 0), min(records.stop, end) - begin
