"""Files with pages of our own against the files that pyarrow writes."""

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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
