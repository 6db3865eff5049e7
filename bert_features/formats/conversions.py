"""Records of a file for other libraries: tf.data, Arrow, pandas."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_features.errors import MissingExtraError
from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.columns import levels_of
from bert_features.formats.records import LEVELS, TEXT, Feature, FeatureRecord
from bert_features.formats.source import RecordSource
from bert_features.machine.quiet_tensorflow import import_tensorflow

# The cell of a record in each column that is not a feature.
CELLS: dict[str, Callable[[FeatureRecord], Any]] = {
    "tokens": lambda record: record.tokens,
    "token_ids": lambda record: record.token_ids,
    "words": lambda record: record.words,
    "word_starts": lambda record: record.word_spans and record.word_spans.starts,
    "word_ends": lambda record: record.word_spans and record.word_spans.ends,
    "word_type_ids": lambda record: record.word_spans and record.word_spans.type_ids,
    "word_num_pieces": lambda record: record.word_spans and record.word_spans.num_pieces,
}


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
        for record in source._iterate(wanted):
            cells = {
                name: _encoded(CELLS[name](record)) if dtype == TEXT else CELLS[name](record)
                for name, dtype in columns.items()
            }
            yield {"unique_id": record.unique_id, **cells, **record.features}

    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(wanted)))


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
    batches = [convert_to_arrow(batch, features, schema) for batch in source._read_batches(wanted)]
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
    cells: dict[str, list[Any]] = {name: [] for name in names}
    cells |= {feature.name: [] for feature in source.features}
    ids = []
    for record in source._iterate(wanted):
        ids.append(record.unique_id)
        for name in names:
            cells[name].append(_cell(CELLS[name](record)))
        for name, values in record.features.items():
            cells[name].append(values)
    columns = {name: pd.Series(_objects(values), dtype=object) for name, values in cells.items()}
    id_dtype = object if source.id_type == "str" else np.int64
    return pd.DataFrame({"unique_id": pd.Series(ids, dtype=id_dtype), **columns})


def _cell(value: Any) -> Any:
    return _objects(list(value)) if isinstance(value, tuple) else value


def _objects(values: list[Any]) -> np.ndarray:
    """An object array [len(values)]; arrays of one shape are kept apart, not stacked."""
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells
