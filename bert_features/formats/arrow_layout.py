"""Batches as Arrow, and back: the layout of Parquet and Arrow files and of `to_arrow`.

Columns: `unique_id` int64 or string; with token features `tokens` list<string> and `token_ids`
list<int32>; with word features `words` list<string>, `word_starts`, `word_ends`, `word_type_ids`
and `word_num_pieces`, each list<int32>. A feature of tokens, words or pairs of these is
list<fixed_size_list<halffloat or float>[D]>, one of sequences fixed_size_list<…>[D], which may also
be of int8, or of uint8 for bits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_features.config.levels import LEVELS, TEXT
from bert_features.formats.columns import (
    convert_to_batch,
    level_of_columns,
    levels_of,
    unit_columns,
    value_dtype,
)
from bert_features.formats.records import Feature, FeatureBatch

# The key of our metadata, JSON, in the metadata of the schema.
METADATA_KEY = b"bert_features"
# The key of the checksums in the metadata of a record batch of Arrow.
CHECKSUMS_KEY = b"bert_features_checksums"


def schema_of(features: Sequence[Feature], id_type: str) -> Any:
    """The `pyarrow.Schema` of a file, without metadata."""
    import pyarrow as pa

    types = {"int32": pa.int32(), TEXT: pa.string()}
    fields = [("unique_id", pa.string() if id_type == "str" else pa.int64())]
    for level in levels_of(features):
        fields += [
            (name, pa.list_(types[dtype])) for name, dtype in unit_columns(level, features).items()
        ]
    return pa.schema(fields + [(feature.name, _feature_type(feature)) for feature in features])


def _feature_type(feature: Feature) -> Any:
    import pyarrow as pa

    # Arrow has no bfloat16; float32 holds its values exactly.
    values = {"float16": pa.float16(), "float32": pa.float32(), "bfloat16": pa.float32()}
    values |= {"int8": pa.int8(), "binary": pa.uint8(), "int32": pa.int32()}
    vector = pa.list_(values[feature.dtype], feature.stored_width)
    return vector if feature.is_sequence else pa.list_(vector)


def convert_to_arrow(batch: FeatureBatch, features: Sequence[Feature], schema: Any) -> Any:
    """The columns of a schema as a `pyarrow.RecordBatch`; features are views of NumPy's arrays."""
    import pyarrow as pa

    columns = {"unique_id": batch.unique_ids, **batch.columns}
    levels = level_of_columns(features)
    splits = {
        level: pa.array(batch.levels[level].splits, pa.int32()) for level in levels_of(features)
    }

    def column(field: Any) -> Any:
        level = levels.get(field.name)
        if field.name not in columns:  # the token ids of JSON lines
            return pa.nulls(len(batch), field.type)
        kind = field.type if level is None else field.type.value_type
        values = columns[field.name]
        if values.ndim > 1:
            dtype = kind.value_type.to_pandas_dtype()
            flat = pa.array(np.ascontiguousarray(values, dtype).reshape(-1))
            array = pa.FixedSizeListArray.from_arrays(flat, type=kind)
        else:
            array = pa.array(values, kind)
        if level is None:
            return array
        return pa.ListArray.from_arrays(splits[level], array, type=field.type)

    return pa.record_batch([column(field) for field in schema], schema=schema)


def convert_from_arrow(table: Any, features: Sequence[Feature]) -> FeatureBatch:
    """A table with columns of `schema_of` as a batch; its features are views of the table.

    Raises ValueError if two columns of a level differ in the number of entries of an example.
    """
    by_name = {feature.name: feature for feature in features}
    levels = level_of_columns(features)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]  # a copy only where it has several chunks
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        level = levels.get(name)
        if level is not None:
            splits = splits_of(array)
            if not np.array_equal(columns.setdefault(LEVELS[level].splits, splits), splits):
                raise ValueError(f"{name} differs from other columns in its number of entries")
        if name in by_name:
            columns[name] = values_of(array, by_name[name])
        else:
            flat = array if level is None else array.flatten()
            key = "unique_ids" if name == "unique_id" else name
            columns[key] = _to_numpy(flat)
    return convert_to_batch(columns, features)


def values_of(array: Any, feature: Feature) -> np.ndarray:
    """The vectors of a feature's column: [rows, D], a view."""
    vectors = array if feature.is_sequence else array.flatten()
    values = _to_numpy(vectors.flatten()).reshape(-1, feature.stored_width)
    return values.astype(value_dtype(feature.dtype), copy=False)


def splits_of(array: Any) -> np.ndarray:
    """Where the lists of a column begin and end: int64 [rows + 1]."""
    offsets = _to_numpy(array.offsets).astype(np.int64)
    splits: np.ndarray = offsets - offsets[0]
    return splits


def _to_numpy(array: Any) -> np.ndarray:
    """The values of an array, a view where they are numbers.

    Numbers go by DLPack: Arrow's `to_numpy` imports pandas, which takes half a second.
    """
    from pyarrow import types

    if array.null_count == 0 and (types.is_integer(array.type) or types.is_floating(array.type)):
        return np.from_dlpack(array)
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values
