"""Batches as Arrow, and back: the layout of Parquet and Arrow files and of `to_arrow`.

Columns: `unique_id` int64 or string; with token features `tokens` list<string> and `token_ids`
list<int32>; with word features `words` list<string>, `word_starts`, `word_ends`, `word_type_ids`
and `word_num_pieces`, each list<int32>. A feature of tokens or words is
list<fixed_size_list<halffloat or float>[D]>, one of sequences fixed_size_list<…>[D].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_features.formats.columns import (
    LEVELS,
    TEXT,
    convert_ids,
    convert_to_batch,
    convert_to_columns,
    levels_of,
)
from bert_features.formats.records import Feature, FeatureBatch

# The key of our metadata, JSON, in the metadata of the schema.
METADATA_KEY = b"bert_features"
# That of the checksums: in Parquet in the metadata of the file, in Arrow in that of a record batch.
CHECKSUMS_KEY = b"bert_features_checksums"


def schema_of(features: Sequence[Feature], id_type: str) -> Any:
    """The `pyarrow.Schema` of a file, without metadata."""
    import pyarrow as pa

    types = {"int32": pa.int32(), TEXT: pa.string()}
    fields = [("unique_id", pa.string() if id_type == "str" else pa.int64())]
    for level in levels_of(features):
        columns = LEVELS[level].columns.items()
        fields += [(name, pa.list_(types[dtype])) for name, (_, dtype) in columns]
    return pa.schema(fields + [(feature.name, _feature_type(feature)) for feature in features])


def _feature_type(feature: Feature) -> Any:
    import pyarrow as pa

    values = {"float16": pa.float16(), "float32": pa.float32()}
    vector = pa.list_(values[feature.dtype], feature.width)
    return vector if feature.level == "sequence" else pa.list_(vector)


def convert_to_arrow(batch: FeatureBatch, features: Sequence[Feature], schema: Any) -> Any:
    """A batch as a `pyarrow.RecordBatch`; its feature columns are views of the NumPy arrays."""
    import pyarrow as pa

    columns = convert_to_columns(batch, features)
    ids = batch.unique_ids.tolist() if batch.unique_ids.dtype == object else batch.unique_ids
    arrays = {"unique_id": pa.array(ids, schema.field("unique_id").type)}

    def rows(name: str, level: str, values: Any) -> Any:
        splits = pa.array(columns[LEVELS[level].splits], pa.int32())
        return pa.ListArray.from_arrays(splits, values, type=schema.field(name).type)

    for level in levels_of(features):
        for name in LEVELS[level].columns:
            kind = schema.field(name).type.value_type
            arrays[name] = rows(name, level, pa.array(columns[name], kind))
    for feature in features:
        vectors = _vectors(batch.features[feature.name], feature)
        is_row = feature.level == "sequence"
        arrays[feature.name] = vectors if is_row else rows(feature.name, feature.level, vectors)
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def _vectors(values: np.ndarray, feature: Feature) -> Any:
    import pyarrow as pa

    kind = _feature_type(feature)
    kind = kind if feature.level == "sequence" else kind.value_type
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


def convert_from_arrow(table: Any, features: Sequence[Feature], id_type: str) -> FeatureBatch:
    """A table with the columns of `schema_of` as a batch; its features are views of the table.

    Raises:
      ValueError: two columns of a level differ in the number of entries of an example.
    """
    arrays = {name: one_array(table[name]) for name in table.column_names}
    ids = arrays["unique_id"]
    columns: dict[str, Any] = {
        "unique_ids": convert_ids(ids.to_pylist(), id_type) if id_type == "str" else ids.to_numpy()
    }
    for level in levels_of(features):
        layout = LEVELS[level]
        splits = splits_of(arrays[next(iter(layout.columns))])
        of_level = [*layout.columns, *(f.name for f in features if f.level == level)]
        for name in of_level:
            if not np.array_equal(splits_of(arrays[name]), splits):
                raise ValueError(f"{name} differs from {layout.batch} in its number of entries")
        columns[layout.splits] = splits
        for name, (_, dtype) in layout.columns.items():
            flat = arrays[name].flatten()
            columns[name] = flat.to_pylist() if dtype == TEXT else flat.to_numpy()
    columns |= {f.name: values_of(arrays[f.name], f) for f in features}
    return convert_to_batch(columns, features)


def one_array(column: Any) -> Any:
    """A column of a table as one `pyarrow.Array`; a copy only where the column has several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def values_of(array: Any, feature: Feature) -> np.ndarray:
    """The vectors of a feature's column: [rows, D], a view."""
    vectors = array if feature.level == "sequence" else array.flatten()
    values: np.ndarray = vectors.flatten().to_numpy().reshape(-1, feature.width)
    return values


def splits_of(array: Any) -> np.ndarray:
    """Where the lists of a column begin and end: int64 [rows + 1]."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    splits: np.ndarray = offsets - offsets[0]
    return splits
