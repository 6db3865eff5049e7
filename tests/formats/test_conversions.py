"""Records as Arrow tables, pandas frames and tf.data datasets."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from bert_features.errors import MissingExtraError
from bert_features.formats import DTYPES, IdType, read_features
from tests.formats.feature_files import (
    EVERYTHING,
    MIXES,
    MIXES_AND_IDS,
    ONE,
    SUFFIX,
    all_formats,
    assert_all_same,
    cells_of,
    expected_records,
    mix,
    pairs_of,
    some_batches,
    write,
)


@all_formats
@pytest.mark.parametrize(("name", "id_type"), MIXES_AND_IDS)
def test_to_arrow(tmp_path: Path, format: str, name: str, id_type: IdType) -> None:
    features = MIXES[name]
    batches = some_batches(features, id_type)
    path, again = tmp_path / f"f{SUFFIX[format]}", tmp_path / "again.parquet"
    write(path, format, features, *batches, id_type=id_type)
    write(tmp_path / "p.parquet", "parquet", features, *batches, id_type=id_type)
    file = read_features(path)
    table = file.to_arrow()
    layout = pq.read_schema(tmp_path / "p.parquet")
    assert table.schema.equals(layout)
    assert json.loads(table.schema.metadata[b"bert_features"]) == file.metadata
    expected = list(expected_records(format, *batches, features=features))
    rows = table.to_pylist()
    for row, record in zip(rows, expected, strict=True):
        has_ids = row.pop("token_ids", None) is not None
        assert has_ids == ("tokens" in row and format != "jsonl")
        cells = cells_of(record)
        cells.pop("token_ids", None)
        cells |= {f.name: pairs_of(cells[f.name]) for f in features if f.is_paired}
        assert row == {key: np.array(cell).tolist() for key, cell in cells.items()}
    assert (
        file[1:4].to_arrow().select(["unique_id"]).equals(table.slice(1, 3).select(["unique_id"]))
    )
    assert table.schema.field("unique_id").type == (pa.string() if id_type == "str" else pa.int64())
    if format != "jsonl":  # whose table lacks the token ids
        pq.write_table(table, again)
        assert_all_same(read_features(again), expected)


@all_formats
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_to_pandas(tmp_path: Path, format: str, id_type: IdType) -> None:
    batches = some_batches(EVERYTHING, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *batches, id_type=id_type)
    file = read_features(path)
    frame = file.to_pandas()
    assert list(frame.columns) == file.to_arrow().schema.names
    assert frame["unique_id"].tolist() == file.ids.tolist()
    for i, record in enumerate(expected_records(format, *batches, features=EVERYTHING)):
        for name, cell in cells_of(record).items():
            received = frame[name][i]
            if name != "unique_id":
                assert isinstance(received, np.ndarray)
            assert np.shape(received) == np.shape(cell)
            np.testing.assert_array_equal(received, cell)
    if format == "jsonl":
        assert frame["token_ids"].tolist() == [None] * 6
    assert file[2:4].to_pandas()["unique_id"].tolist() == file.ids[2:4].tolist()
    alike = file[3:4].to_pandas()  # an array alone in its column is still a cell
    assert alike["sentence"][0].shape == (4,)


def test_to_pandas_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "f.npz", "npz", ONE)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[pandas\]"):
        read_features(tmp_path / "f.npz").to_pandas()


@pytest.mark.parametrize(
    ("format", "id_type"),
    [("npz", "int"), ("parquet", "str"), ("jsonl", "str"), ("tfrecord", "int")],
)
def test_to_dataset(tmp_path: Path, format: str, id_type: IdType) -> None:
    dtype = "bfloat16" if "bfloat16" in DTYPES[format] else "float16"
    features = mix("token", "word", "sequence", dtype=dtype)
    batches = some_batches(features, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, features, *batches, id_type=id_type)
    file = read_features(path)
    dataset = file.to_dataset()
    numbers = tf.TensorSpec([None], tf.int32)
    specs = {
        "unique_id": tf.TensorSpec([], tf.string if id_type == "str" else tf.int64),
        "tokens": tf.TensorSpec([None], tf.string),
        "token_ids": numbers,
        "words": tf.TensorSpec([None], tf.string),
        **dict.fromkeys(("word_starts", "word_ends", "word_type_ids", "word_num_pieces"), numbers),
        "layer_output_0": tf.TensorSpec([None, 3], dtype),
        "of words": tf.TensorSpec([None, 2], dtype),
        "sentence": tf.TensorSpec([4], dtype),
    }
    if format == "jsonl":
        del specs["token_ids"]
    assert dataset.element_spec == specs
    assert len(dataset) == 6
    expected = list(expected_records(format, *batches, features=features))
    for _ in range(2):
        for element, record in zip(dataset.as_numpy_iterator(), expected, strict=True):
            for name, cell in cells_of(record).items():
                received = element[name]
                if specs[name].dtype == tf.string:
                    texts = [cell] if isinstance(cell, str) else list(cell)
                    received = [text.decode() for text in np.atleast_1d(received)]
                    assert received == texts
                    continue
                np.testing.assert_array_equal(received, cell)
    ids = [row["unique_id"] for row in file[4:].to_dataset().as_numpy_iterator()]
    assert [i.decode() if isinstance(i, bytes) else i for i in ids] == file.ids[4:].tolist()
