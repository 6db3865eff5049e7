""".npz as NumPy reads it."""

import json
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from bert_features.config.levels import TEXT
from bert_features.formats import IdType, read_features
from bert_features.formats.columns import columns_of, convert_to_columns
from bert_features.formats.records import FeatureBatch
from tests.formats.feature_files import EVERYTHING, some_batches, write


@pytest.mark.parametrize("id_type", ["int", "str"])
def test_npz_as_numpy_sees_it(tmp_path: Path, id_type: IdType) -> None:
    batches = some_batches(EVERYTHING, id_type)
    path = tmp_path / "f.npz"
    write(path, "npz", EVERYTHING, *batches, id_type=id_type)
    expected = convert_to_columns(FeatureBatch.join(batches))
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {*expected, "metadata"}
        assert arrays["metadata"].shape == ()
        assert json.loads(str(arrays["metadata"]))["note"] == "naïve 東京"
        for name, column in columns_of(EVERYTHING, id_type).items():
            assert arrays[name].tolist() == expected[name].tolist()
            width = max(map(len, expected[name])) if column.dtype == TEXT else 0
            assert arrays[name].dtype == (f"<U{width}" if width else column.dtype)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None  # the checksums hold


def test_arrays_are_aligned_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    write(path, "npz", EVERYTHING, *some_batches(EVERYTHING))
    file = read_features(path)
    for feature in file.features:
        assert file.ragged(feature.name)[0].ctypes.data % 64 == 0, feature.name


def test_equal_rows_are_equal_bytes(tmp_path: Path) -> None:
    """Of every run, and however the rows came."""
    batches = some_batches(EVERYTHING, "str")
    for name, parts in (("a", batches), ("b", [FeatureBatch.join(batches)])):
        write(tmp_path / f"{name}.npz", "npz", EVERYTHING, *parts, id_type="str")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:  # and at any time
        assert {info.date_time[0] for info in archive.infolist()} == {1980}


def test_headers_are_parsed_in_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 may fail to parse in two."""
    write(path := tmp_path / "f.npz", "npz", EVERYTHING, *some_batches(EVERYTHING, "int"))
    parse, inside, most = np.lib.format.read_array_header_1_0, [0], [0]

    def read(file: IO[bytes]) -> object:
        inside[0] += 1
        most.append(inside[0])
        time.sleep(0.001)
        inside[0] -= 1
        return parse(file)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", read)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: read_features(path), range(4)))
    assert max(most) == 1
