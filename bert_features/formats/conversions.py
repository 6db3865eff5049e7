"""Records of a file for other libraries: tf.data, Arrow, pandas."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_features.errors import MissingExtraError
from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.columns import levels_of
from bert_features.formats.records import LEVELS, SPANS, TEXT, Feature, FeatureRecord
from bert_features.formats.source import RecordSource
from bert_features.machine.quiet_tensorflow import import_tensorflow


def convert_to_dataset(source: RecordSource, wanted: range) -> Any:
    """The wanted records; see `views.Records.to_dataset`."""
    tf = import_tensorflow()

    columns = _level_columns(source)
    types = {"int32": tf.int32, TEXT: tf.string}
    identifier = tf.string if source.id_type == "str" else tf.int64
    signature = {
        "unique_id": tf.TensorSpec([], identifier),
        **{name: tf.TensorSpec([None], types[dtype]) for name, dtype in columns.items()},
        **{f.name: tf.TensorSpec(_shape(f), tf.as_dtype(f.dtype)) for f in source.features},
    }

    def rows() -> Iterator[dict[str, Any]]:
        for record in source.guarded(source._records(wanted)):
            cells = cells_of(record)
            cells |= {
                name: _encoded(cells[name]) for name in ("tokens", "words") if name in columns
            }
            yield {name: cells[name] for name in signature}

    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(wanted)))


def cells_of(record: FeatureRecord) -> dict[str, Any]:
    """A record by the names of the columns; None for what it does not have."""
    spans = {name: getattr(record.word_spans, name.removeprefix("word_"), None) for name in SPANS}
    return {
        "unique_id": record.unique_id,
        "tokens": record.tokens,
        "token_ids": record.token_ids,
        "words": record.words,
        **spans,
        **record.features,
    }


def _level_columns(source: RecordSource) -> dict[str, str]:
    """The columns of tokens and words that the file has, and their dtypes."""
    return {
        name: dtype
        for level in levels_of(source.features)
        for name, dtype in LEVELS[level].items()
        if name != "token_ids" or source.has_token_ids
    }


def _shape(feature: Feature) -> list[int | None]:
    return [feature.width] if feature.level == "sequence" else [None, feature.width]


def _encoded(texts: tuple[str, ...]) -> np.ndarray:
    # dtype object: NumPy's bytes type drops trailing NULs, and an empty list would become float64.
    return np.array([text.encode("utf-8") for text in texts], object)


def convert_to_table(source: RecordSource, wanted: range) -> Any:
    """The wanted records; see `views.Records.to_arrow`."""
    import pyarrow as pa

    features = tuple(_without_bfloat16(feature) for feature in source.features)
    metadata = source.metadata | {
        "features": [feature.to_metadata() for feature in features],
        "id_type": source.id_type,
    }
    schema = schema_of(features, source.id_type).with_metadata(
        {METADATA_KEY: json.dumps(metadata).encode()}
    )
    read = source.guarded(source._batches(wanted))
    batches = [convert_to_arrow(batch, features, schema) for batch in read]
    table = pa.Table.from_batches(batches, schema)
    if "token_ids" in schema.names and not source.has_token_ids:
        field = schema.field("token_ids")
        nulls = pa.nulls(table.num_rows, field.type)
        table = table.set_column(schema.get_field_index("token_ids"), field, nulls)
    return table


def _without_bfloat16(feature: Feature) -> Feature:
    is_bfloat16 = feature.dtype == "bfloat16"
    return dataclasses.replace(feature, dtype="float32") if is_bfloat16 else feature


def convert_to_frame(source: RecordSource, wanted: range) -> Any:
    """The wanted records; see `views.Records.to_pandas`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error

    names = [name for level in levels_of(source.features) for name in LEVELS[level]]
    names += [feature.name for feature in source.features]
    records = source.guarded(source._records(wanted))
    rows = [cells_of(record) for record in records]
    id_dtype = object if source.id_type == "str" else np.int64
    columns = {"unique_id": pd.Series([row["unique_id"] for row in rows], dtype=id_dtype)}
    for name in names:
        cells = _objects([_cell(row[name]) for row in rows])
        columns[name] = pd.Series(cells, dtype=object)
    return pd.DataFrame(columns)


def _cell(value: Any) -> Any:
    return _objects(list(value)) if isinstance(value, tuple) else value


def _objects(values: list[Any]) -> np.ndarray:
    """An object array [len(values)]; arrays of one shape are kept apart, not stacked."""
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells
