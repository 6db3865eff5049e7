"""Files with pages of our own, as other readers see them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_features.formats.arrow_layout import convert_to_arrow, schema_of
from tests.formats.feature_files import make_batch, mix, write


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("width", [1, 2, 9])
@pytest.mark.parametrize("page_bytes", [1, 40, 1 << 20])
def test_parquet_is_what_pyarrow_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, width: int, page_bytes: int
) -> None:
    """Pages of less than an example, of a few, of all; examples without words, alone and in a row.

    pyarrow reads back the table that went in, nulls and offsets checked, and the footer says what
    that of pyarrow's own file of the same table does.
    """
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.parquet_pages.pages.PAGE_BYTES", page_bytes)
    levels = mix("word", "sequence", dtype=dtype)
    features = tuple(dataclasses.replace(feature, width=width) for feature in levels)
    batch = make_batch(features, [0, 3, 1, 0, 0, 5, 0])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    schema = schema_of(features, "int")
    expected = pa.Table.from_batches([convert_to_arrow(batch, features, schema)])
    table = pq.read_table(path)
    table.validate(full=True)
    assert table.equals(expected)

    pq.write_table(expected, tmp_path / "pyarrow", compression="none", write_statistics=False)
    ours, theirs = (pq.ParquetFile(file) for file in (path, tmp_path / "pyarrow"))
    with ours, theirs:
        assert ours.schema.equals(theirs.schema)
        group, other = (file.metadata.row_group(0) for file in (ours, theirs))
        for i in range(group.num_columns):
            for name in ("path_in_schema", "physical_type", "num_values", "compression"):
                assert getattr(group.column(i), name) == getattr(other.column(i), name)
        sizes = [group.column(i).total_compressed_size for i in range(group.num_columns)]
        assert group.total_byte_size == sum(sizes)
        assert sum(sizes) < path.stat().st_size


def rows_of_pyarrow(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return rows


def rows_of_duckdb(path: Path) -> list[dict[str, Any]]:
    table = pytest.importorskip("duckdb").read_parquet(str(path))
    return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]


def rows_of_polars(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pytest.importorskip("polars").read_parquet(path).to_dicts()
    return rows


@pytest.mark.parametrize("read", [rows_of_pyarrow, rows_of_duckdb, rows_of_polars])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_foreign_readers_see_equal_values(
    tmp_path: Path, read: Callable[[Path], list[dict[str, Any]]], dtype: str
) -> None:
    """Each of the three has a reader of its own."""
    features = mix("token", "word", "sequence", dtype=dtype)
    batch = make_batch(features, [2, 0, 1])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    for row, record in zip(read(path), batch.records(features), strict=True):
        assert row["unique_id"] == record.unique_id
        assert row["tokens"] == list(record.tokens or ())
        assert row["words"] == list(record.words or ())
        for name, values in record.features.items():
            np.testing.assert_array_equal(np.array(row[name]).reshape(values.shape), values)
