"""Parquet as pyarrow reads it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bert_features.errors import OutputError
from tests.formats.feature_files import (
    EVERYTHING,
    make_batch,
    read_all,
    write,
)


@pytest.mark.parametrize("column", ["layer_output_0", "words", "token_ids", "unique_id"])
def test_pyarrow_finds_damaged_pages(tmp_path: Path, column: str) -> None:
    path = tmp_path / "f.parquet"
    write(path, "parquet", EVERYTHING, make_batch(EVERYTHING, [3, 1]))
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.num_rows == 2
    content = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        names = [group.column(i).path_in_schema.partition(".")[0] for i in range(group.num_columns)]
        chunk = group.column(names.index(column))
        start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(path, page_checksum_verification=True)
    with pytest.raises(OutputError, match="CRC checksum verification failed"):
        read_all(path, "parquet")
