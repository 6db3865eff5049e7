"""Files that are missing, damaged, or something else: one clear error."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    FORMATS,
    read_features,
)
from tests.formats.feature_files import (
    ONE,
    SIDECARS,
    SUFFIX,
    all_formats,
    assert_refused,
    fit_sidecar,
    make_batch,
    read_all,
    write,
)


def test_a_missing_file(tmp_path: Path) -> None:
    for format in FORMATS:
        with pytest.raises(OutputError, match=r"cannot read .*absent: No such file or directory"):
            read_features(tmp_path / "absent", format=format)
    with pytest.raises(OutputError, match="Is a directory"):
        read_features(tmp_path, format="npz")


@all_formats
@pytest.mark.parametrize("left", [0.02, 0.3, 0.6, 0.95, -1])
def test_a_file_that_was_cut_short(tmp_path: Path, format: str, left: float) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [5] * 50))
    content = path.read_bytes()
    path.write_bytes(content[: -1 if left == -1 else int(len(content) * left)])
    if format in SIDECARS:
        assert_refused(path, format)
        fit_sidecar(path)  # without the size of the file
    if format == "jsonl" and left == -1:
        read_all(path, format)  # only the last line's end is gone: nothing is lost
    else:
        assert_refused(path, format)


@all_formats
@pytest.mark.parametrize("content", [b"", b"\n", b"hello\nworld\n" * 50, b"[1]\n", b'{"a": 1}\n'])
def test_a_file_of_something_else(tmp_path: Path, format: str, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    if format == "jsonl" and content == b"":
        assert list(read_features(path, format=format)) == []  # no lines, no sidecar: no records
    else:
        assert_refused(path, format)


def foreign_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(3))


def compressed_npz(path: Path) -> None:
    write(path, "npz", ONE, make_batch(ONE, [1]))
    with np.load(path) as arrays:
        columns = dict(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)


def pickled_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, metadata=np.array([print], dtype=object))


def foreign_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), path)


def foreign_arrow(path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def foreign_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = [1, 2]


def other_formats_sidecar(path: Path) -> None:
    write(path, "jsonl", ONE, make_batch(ONE, [1]))


@pytest.mark.parametrize(
    ("format", "make"),
    [
        ("npz", foreign_npz),
        ("npz", compressed_npz),
        ("npz", pickled_npz),
        ("parquet", foreign_parquet),
        ("arrow", foreign_arrow),
        ("hdf5", foreign_hdf5),
        ("tfrecord", other_formats_sidecar),
    ],
)
def test_a_file_of_the_format_but_not_ours(
    tmp_path: Path, format: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "f")
    assert_refused(tmp_path / "f", format)
