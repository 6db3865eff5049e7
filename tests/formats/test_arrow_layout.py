"""Parquet and Arrow files as other programs read them; each has a reader of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.formats.feature_files import make_batch, mix, write


def rows_of_duckdb(table: Any) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]


def read_arrow(path: Path) -> Any:
    with pa.memory_map(str(path)) as mapped:
        return pa.ipc.open_file(mapped).read_all()


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "parquet pyarrow": lambda path: pq.read_table(path).to_pylist(),
    "parquet duckdb": lambda path: rows_of_duckdb(duckdb.read_parquet(str(path))),
    "parquet polars": lambda path: polars.read_parquet(path).to_dicts(),
    "arrow pyarrow": lambda path: read_arrow(path).to_pylist(),
    "arrow duckdb": lambda path: rows_of_duckdb(duckdb.from_arrow(read_arrow(path))),
    "arrow polars": lambda path: polars.read_ipc(path).to_dicts(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_foreign_readers_see_equal_values(tmp_path: Path, reader: str, dtype: str) -> None:
    if (reader, dtype) == ("arrow duckdb", "float16"):
        pytest.skip("DuckDB takes no half floats from Arrow")
    features = mix("token", "word", "sequence", dtype=dtype)
    batch = make_batch(features, [2, 0, 1])
    path = tmp_path / "f"
    write(path, reader.split()[0], features, batch)
    for row, record in zip(READERS[reader](path), batch.records(features), strict=True):
        assert row["unique_id"] == record.unique_id
        assert row["tokens"] == list(record.tokens or ())
        assert row["words"] == list(record.words or ())
        for name, values in record.features.items():
            np.testing.assert_array_equal(np.array(row[name]).reshape(values.shape), values)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_the_types_of_columns(tmp_path: Path, format: str) -> None:
    features = mix("token", "word", "sequence")
    path = tmp_path / "f"
    write(path, format, features, make_batch(features, [1, 0], id_type="str"), id_type="str")
    schema = pq.read_schema(path) if format == "parquet" else read_arrow(path).schema
    texts, numbers = pa.list_(pa.string()), pa.list_(pa.int32())
    assert json.loads(schema.metadata[b"bert_features"])["checkpoint"] == "sha256:ab"
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "unique_id": pa.string(),
        "tokens": texts,
        "token_ids": numbers,
        "words": texts,
        **dict.fromkeys(("word_starts", "word_ends", "word_type_ids", "word_num_pieces"), numbers),
        "layer_output_0": pa.list_(pa.list_(pa.float32(), 3)),
        "of words": pa.list_(pa.list_(pa.float32(), 2)),
        "sentence": pa.list_(pa.float32(), 4),
    }
