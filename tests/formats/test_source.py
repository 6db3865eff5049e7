"""Files that are missing, damaged, or something else: one clear error."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import FORMATS, open_writer, read_features
from bert_features.formats.records import Feature
from tests.formats.feature_files import (
    METADATA,
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
from tests.formats.feature_folders import write_folder


def test_a_missing_file(tmp_path: Path) -> None:
    for format in FORMATS:
        with pytest.raises(OutputError, match="absent: No such file"):
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


SMALL = (Feature("s", (-1,), "none", 1, "int8", "sequence", "mean", scale=((-9.0,), (9.0,))),)


@pytest.mark.parametrize("form", [*FORMATS, "folder", "floats"])
def test_a_path_means_the_file_that_was_there(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another of its name is in the next folder, and then in its place."""
    format = {"folder": "npz", "floats": "parquet"}.get(form, form)
    features, name = SMALL if form == "floats" else ONE, f"f{SUFFIX[format]}"
    for folder, lengths in (("here", [1, 2]), ("there", [3, 4, 5])):
        (tmp_path / folder).mkdir()
        place, batch = tmp_path / folder / name, make_batch(features, lengths, seed=len(lengths))
        if form == "folder":
            write_folder(place, format, features, batch)
        else:
            write(place, format, features, batch)
    monkeypatch.chdir(tmp_path / "here")
    whole = read_features(tmp_path / "here" / name, floats=form == "floats")
    expected = [record.features for record in whole]
    file = read_features(name, floats=form == "floats")
    monkeypatch.chdir(tmp_path / "there")
    vector = features[0].name
    for record, values in zip(file, expected, strict=True):
        assert np.array_equal(record.features[vector], values[vector])
    assert len(file) == 2
    file.close()
    assert np.array_equal(file[1].features[vector], expected[1][vector])
    file.close()
    shutil.rmtree(tmp_path / "here")
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    changed = f"^{file.path} was replaced or changed after it was opened; open it again$"
    for use in (lambda: file[0], lambda: list(file), file.verify):
        with pytest.raises(OutputError, match=changed):
            use()


@all_formats
def test_a_file_is_written_where_it_was_begun(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    writer = open_writer("f", format=format, features=ONE, metadata=METADATA)
    monkeypatch.chdir("there")
    with writer:
        writer.write(make_batch(ONE, [1]))
    assert len(read_features(tmp_path / "f", format=format)) == 1
    assert not list(Path().iterdir())
