"""Files with pages of our own, as other readers see them; pyarrow writes what they do not cover."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_features.formats import read_features
from bert_features.formats.arrow_layout import convert_to_arrow, schema_of
from bert_features.formats.parquet_pages.row_groups import (
    RowGroupWriter,
    _sample_is_read_back,
    covers,
)
from tests.formats.feature_files import assert_all_same, make_batch, mix, write


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


# What the pages do not cover.


def unreadable_footer(data: bytes, start: int = 0) -> None:
    raise KeyError(11)


OTHER_MACHINES = {
    "big-endian": ("sys.byteorder", "big"),
    "unknown footer": (
        "bert_features.formats.parquet_pages.row_groups.decode_struct",
        unreadable_footer,
    ),
    "unknown dtype": ("bert_features.formats.parquet_pages.row_groups.PHYSICAL_TYPES", {}),
    "wrong footer": ("bert_features.formats.parquet_pages.row_groups.MAGIC", b"PARX"),
}


@pytest.fixture
def _decided_anew() -> Iterator[None]:
    """The decision about the sample is kept for the process; here it depends on the test."""
    _sample_is_read_back.cache_clear()
    yield
    _sample_is_read_back.cache_clear()


@pytest.mark.usefixtures("_decided_anew")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("machine", OTHER_MACHINES)
def test_pyarrow_writes_what_the_pages_do_not_cover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, dtype: str
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 3)
    features = mix("token", "word", "sequence", dtype=dtype)
    batches = [make_batch(features, [2, 0, 1]), make_batch(features, [4], first_id=3)]
    ours, theirs = tmp_path / "ours.parquet", tmp_path / "theirs.parquet"
    assert covers(features)
    write(ours, "parquet", features, *batches)

    def refuse(*_: Any) -> None:
        raise AssertionError("a page was written")

    _sample_is_read_back.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(*OTHER_MACHINES[machine])
        assert not covers(features)
        patch.setattr(RowGroupWriter, "_append_feature", refuse)
        write(theirs, "parquet", features, *batches)
    assert pq.read_table(theirs).equals(pq.read_table(ours), check_metadata=True)
    with pq.ParquetFile(ours) as one, pq.ParquetFile(theirs) as other:
        groups = [
            [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            for file in (one, other)
        ]
    assert groups == [[3, 1], [3, 1]]
    records = [record for batch in batches for record in batch.records(features)]
    assert_all_same(read_features(theirs), records)
