"""HDF5 as h5py reads it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    open_writer,
    read_features,
)
from tests.formats.feature_files import (
    ONE,
    make_batch,
    mix,
    several,
    some_batches,
    tokens_of,
    write,
)


def test_hdf5_as_h5py_sees_it(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    features = several("float16")
    batch = make_batch(features, [2, 0])
    path = tmp_path / "f.h5"
    write(path, "hdf5", features, batch)
    with h5py.File(path, "r") as file:
        assert file["unique_ids"][:].tolist() == [0, 1]
        assert file["row_splits"][:].tolist() == [0, 4, 6]
        assert file["token_ids"].dtype == np.int32
        assert [token.decode() for token in file["tokens"][:]] == tokens_of(batch)
        assert h5py.check_string_dtype(file["tokens"].dtype).encoding == "utf-8"
        assert json.loads(file["metadata"][()])["checkpoint"] == "sha256:ab"
        assert file["last four"].dtype == np.float16
        np.testing.assert_array_equal(file["last four"][:], batch.features["last four"])


def test_hdf5_metadata_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    long = {"note": "x" * 100_000}  # an attribute holds 64 KB
    with open_writer(path, format="hdf5", features=ONE, metadata=long):
        pass
    assert read_features(path).metadata["note"] == long["note"]


def test_hdf5_of_words_and_sequences(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    features = mix("word", "sequence")
    first, second = some_batches(features, "str")[:2]
    path = tmp_path / "f.h5"
    write(path, "hdf5", features, first, second, id_type="str")
    with h5py.File(path, "r") as file:
        assert "row_splits" not in file
        ids = [*first.unique_ids, *second.unique_ids]
        assert file["unique_ids"].asstr()[:].tolist() == ids
        assert file["word_splits"][:].tolist() == [0, 3, 3, 10, 11]
        assert file["word_num_pieces"].dtype == np.int32
        assert (file["sentence"].shape, file["of words"].shape) == ((4, 4), (11, 2))


def test_h5py_finds_damaged_chunks(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "f.h5"
    batch = make_batch(ONE, [5])
    write(path, "hdf5", ONE, batch)
    values = batch.features["layer_output_0"].tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(values) + 5] ^= 1
    path.write_bytes(content)
    with h5py.File(path, "r") as file:
        assert file["layer_output_0"].fletcher32
        assert file["token_ids"][:].tolist() == batch.columns["token_ids"].tolist()
        with pytest.raises(OSError, match="filter returned failure"):
            file["layer_output_0"][:]
    with pytest.raises(OutputError, match="as hdf5: it is damaged"):
        read_features(path)[0]
