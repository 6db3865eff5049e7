"""HDF5 as h5py reads it."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from bert_features.config.levels import TEXT
from bert_features.formats import IdType, open_writer, read_features
from bert_features.formats.columns import columns_of, convert_to_columns
from bert_features.formats.records import FeatureBatch
from tests.formats.feature_files import EVERYTHING, ONE, some_batches, write


@pytest.mark.parametrize("id_type", ["int", "str"])
def test_hdf5_as_h5py_sees_it(tmp_path: Path, id_type: IdType) -> None:
    batches = some_batches(EVERYTHING, id_type)
    path = tmp_path / "f.h5"
    write(path, "hdf5", EVERYTHING, *batches, id_type=id_type)
    expected = convert_to_columns(FeatureBatch.join(batches))
    with h5py.File(path, "r") as file:
        assert set(file) == {*expected, "metadata"}
        assert json.loads(file["metadata"][()])["checkpoint"] == "sha256:ab"
        for name, column in columns_of(EVERYTHING, id_type).items():
            dataset = file[name]
            if column.dtype == TEXT:
                assert h5py.check_string_dtype(dataset.dtype).encoding == "utf-8"
                dataset = dataset.asstr()
            else:
                assert dataset.dtype == column.dtype
            assert dataset[:].tolist() == expected[name].tolist()


@pytest.mark.parametrize("width", [768, 200_000])
def test_a_chunk_fits_the_cache_of_older_hdf5(tmp_path: Path, width: int) -> None:
    feature = replace(ONE[0], width=width)
    with open_writer(tmp_path / "f.h5", format="hdf5", features=(feature,), metadata={}):
        pass
    with h5py.File(tmp_path / "f.h5") as file:
        rows, columns = file["layer_output_0"].chunks
    assert columns == width
    assert rows == 1 or rows * columns * 4 <= 2**20  # bytes


def test_hdf5_metadata_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    long = {"note": "x" * 100_000}  # an attribute holds 64 KB
    with open_writer(path, format="hdf5", features=ONE, metadata=long):
        pass
    assert read_features(path).metadata["note"] == long["note"]
