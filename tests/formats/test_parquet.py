"""Parquet as pyarrow reads it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from tests.formats.feature_files import (
    EVERYTHING,
    make_batch,
    mix,
    read_all,
    several,
    tokens_of,
    write,
)


def test_parquet_as_pyarrow_sees_it(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    features = several("float16")
    batch = make_batch(features, [2, 0])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    table = pq.read_table(path)
    assert table.schema.names == ["unique_id", "tokens", "token_ids", *batch.features]
    assert table.schema.field("tokens").type == pa.list_(pa.string())
    assert table.schema.field("token_ids").type == pa.list_(pa.int32())
    assert table.schema.field("last four").type == pa.list_(pa.list_(pa.float16(), 16))
    assert json.loads(table.schema.metadata[b"bert_features"])["checkpoint"] == "sha256:ab"
    assert table["unique_id"].to_pylist() == [0, 1]
    assert table["tokens"].to_pylist() == [
        tokens_of(batch)[:4],
        tokens_of(batch)[4:],
    ]
    values = table["last four"].to_pylist()
    np.testing.assert_array_equal(np.array(values[1]), batch.features["last four"][4:])


def test_parquet_of_words_and_sequences(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "f.parquet"
    features = mix("word", "sequence")
    write(path, "parquet", features, make_batch(features, [1, 0], id_type="str"), id_type="str")
    schema = pq.read_schema(path)
    numbers = pa.list_(pa.int32())
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "unique_id": pa.string(),
        "words": pa.list_(pa.string()),
        **dict.fromkeys(("word_starts", "word_ends", "word_type_ids", "word_num_pieces"), numbers),
        "of words": pa.list_(pa.list_(pa.float32(), 2)),
        "sentence": pa.list_(pa.float32(), 4),
    }


@pytest.mark.parametrize("column", ["layer_output_0", "words", "token_ids", "unique_id"])
def test_pyarrow_finds_damaged_pages(tmp_path: Path, column: str) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
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
