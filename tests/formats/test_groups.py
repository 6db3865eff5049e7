"""Groups of Parquet and Arrow: their sizes, and which of them are read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    assert_all_same,
    assert_same,
    expected_records,
    make_batch,
    mix,
    write,
)

both_formats = pytest.mark.parametrize("format", ["parquet", "arrow"])


def group_rows(path: Path) -> list[int]:
    """The rows of each group of a file."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as parquet:
            groups = range(parquet.num_row_groups)
            return [parquet.metadata.row_group(i).num_rows for i in groups]
    with pa.memory_map(str(path)) as mapped:
        arrow = pa.ipc.open_file(mapped)
        return [arrow.get_batch(i).num_rows for i in range(arrow.num_record_batches)]


def test_parquet_is_read_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups of two examples; of the last the pages of a feature are damaged."""
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 2)
    path = tmp_path / "f.parquet"
    batches = [make_batch(EVERYTHING, [2, 3], first_id=2 * i, seed=i) for i in range(4)]
    write(path, "parquet", EVERYTHING, *batches)
    with pq.ParquetFile(path) as parquet:
        group = parquet.metadata.row_group(3)
        columns = [group.column(i) for i in range(group.num_columns)]
    (damaged,) = (c for c in columns if c.path_in_schema.startswith("layer_output_0"))
    content = bytearray(path.read_bytes())
    begin = damaged.data_page_offset
    content[begin : begin + damaged.total_compressed_size] = b"x" * damaged.total_compressed_size
    path.write_bytes(content)

    file = read_features(path)
    expected = [record for batch in batches for record in batch.records(EVERYTHING)]
    assert_all_same([file[i] for i in (5, 0, 1, 4)], [expected[i] for i in (5, 0, 1, 4)])
    assert_all_same(file[1:6], expected[1:6])
    assert file.ids.tolist() == list(range(8))
    for name in ("sum", "of words", "sentence"):  # columns beside the damaged one
        values, _ = file.ragged(name)
        whole = np.concatenate([batch.features[name] for batch in batches])
        np.testing.assert_array_equal(values, whole)
    for far in (lambda: file[7], lambda: list(file[5:]), lambda: file.ragged("layer_output_0")):
        with pytest.raises(OutputError, match=r"as parquet: .* damaged"):
            far()


@both_formats
def test_the_rows_of_groups(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is 4 tokens of 12 bytes. Small batches are joined, large ones cut."""
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_BYTES", 480)  # 10 examples
    monkeypatch.setattr("bert_features.formats.groups.MAX_BYTES", 960)  # 20 examples
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 15)
    sizes = [4, 4, 4, 50, 9, 12, 1]
    batches = [
        make_batch(ONE, [2] * n, first_id=sum(sizes[:i]), seed=i) for i, n in enumerate(sizes)
    ]
    path = tmp_path / f"f.{format}"
    write(path, format, ONE, *batches)
    # 4+4+4; 20+20+10 of the 50; 9 would be 21 with the 12, so it goes alone; 12; 1 at the end
    assert group_rows(path) == [12, 20, 20, 10, 9, 12, 1]
    for pair in zip(read_features(path), expected_records(format, *batches), strict=True):
        assert_same(*pair)


@both_formats
def test_words_and_sequences_are_cut(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example is 3 words of 8 bytes and 16 bytes of a sequence: two fit into a group."""
    monkeypatch.setattr("bert_features.formats.groups.MAX_BYTES", 90)
    features = mix("word", "sequence")
    batch = make_batch(features, [3] * 7)
    path = tmp_path / f"f.{format}"
    write(path, format, features, batch)
    assert group_rows(path) == [2, 2, 2, 1]
    file = read_features(path)
    expected = list(batch.records(features))
    assert_all_same(file, expected)
    assert_all_same(file[1:6], expected[1:6])
    assert_all_same([file[i] for i in range(7)], expected)
