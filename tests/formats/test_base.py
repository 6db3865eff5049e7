"""A features file appears whole or not at all; what stands in the way is said beforehand."""

import gc
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bert_features.errors import OutputError
from bert_features.files import staging
from bert_features.formats import FORMATS, check_output, open_writer, read_features
from bert_features.formats.records import FeatureBatch
from tests.formats.feature_files import (
    ONE,
    SIDECARS,
    SUFFIX,
    all_formats,
    files_of,
    full_disk,
    make_batch,
    write,
)


def test_bytes_written_is_what_lies_on_disk(tmp_path: Path) -> None:
    for format in FORMATS:
        folder = tmp_path / format
        folder.mkdir()
        writer = write(folder / f"f{SUFFIX[format]}", format, ONE, make_batch(ONE, [5, 2]))
        sizes = [path.stat().st_size for path in folder.iterdir()]
        assert len(sizes) == (2 if format in SIDECARS else 1)
        assert writer.bytes_written == sum(sizes) > 0


@all_formats
def test_an_existing_file_is_kept(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    writer = open_writer(path, format=format, features=ONE, metadata={})
    path.write_text("of someone else")
    with pytest.raises(OutputError, match="overwrite"):
        open_writer(path, format=format, features=ONE, metadata={})
    with pytest.raises(OutputError, match="overwrite"):
        writer.close()
    assert path.read_text() == "of someone else"
    assert list(tmp_path.iterdir()) == [path]


@all_formats
def test_overwrite_replaces_the_file_and_its_sidecar(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    write(path, format, ONE, make_batch(ONE, [1]))
    names = {p.name for p in tmp_path.iterdir()}
    with open_writer(path, format=format, features=ONE, metadata={"run": 2}, overwrite=True) as w:
        w.write(make_batch(ONE, [1, 1]))
    file = read_features(path, format=format)
    assert len(list(file)) == 2
    assert file.metadata["run"] == 2
    assert {p.name for p in tmp_path.iterdir()} == names


@all_formats
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("older", [True, False])
def test_an_exception_leaves_things_as_they_were(
    tmp_path: Path, format: str, error: type[BaseException], older: bool
) -> None:
    path = tmp_path / "f"
    if older:
        write(path, format, ONE, make_batch(ONE, [5]))
    before = files_of(tmp_path)

    def fail_halfway() -> None:
        with open_writer(path, format=format, features=ONE, metadata={}, overwrite=True) as writer:
            writer.write(make_batch(ONE, [3] * 100))
            during = files_of(tmp_path)
            assert before.items() <= during.items()
            assert len(during) > len(before)  # it does lie somewhere
            raise error("enough")

    with pytest.raises(error, match="enough"):
        fail_halfway()
    assert files_of(tmp_path) == before


@all_formats
def test_an_interrupt_inside_write(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(tmp_path / "f", format=format, features=ONE, metadata={})

    def interrupt(batch: FeatureBatch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_write", interrupt)
    with pytest.raises(KeyboardInterrupt):  # no `with`: the writer clears up by itself
        writer.write(make_batch(ONE, [1]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="it was closed already"):
        writer.write(make_batch(ONE, [1]))


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = write(tmp_path / "f", "npz", ONE)
    size = writer.bytes_written
    writer.close()
    writer.discard()
    assert (tmp_path / "f").stat().st_size == writer.bytes_written == size


@pytest.fixture(scope="module", autouse=True)
def _everything_is_closed() -> Iterator[None]:
    """An archive that is still open would complain; looking for it takes half a second."""
    yield
    gc.collect()


@all_formats
@pytest.mark.parametrize(
    ("limit", "batches"),
    [(300_000, 200), (1000, 1), (0, 0)],
    ids=["while writing", "while closing", "nothing fits"],
)
def test_a_full_disk_is_one_clear_error(
    tmp_path: Path, format: str, limit: int, batches: int
) -> None:
    path, batch = tmp_path / "f", make_batch(ONE, [30] * 100)
    write(path, format, ONE, make_batch(ONE, [3, 1]))
    before = files_of(tmp_path)

    def write_over() -> None:
        with open_writer(path, format=format, features=ONE, metadata={}, overwrite=True) as writer:
            for _ in range(batches):
                writer.write(batch)

    said = rf"^cannot write {path}: File too large; nothing was left behind$"
    with full_disk(limit), pytest.raises(OutputError, match=said):
        write_over()
    assert files_of(tmp_path) == before


def threads_of_files() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("file")]


def write_groups(path: Path, format: str, *, error: BaseException | None = None) -> None:
    """Writes 60 MB, and then fails if there is an error to raise."""
    wide = (replace(ONE[0], width=768),)
    batch = make_batch(wide, [30] * 100)
    with open_writer(path, format=format, features=wide, metadata={}, overwrite=True) as writer:
        for _ in range(6):
            writer.write(batch)
        assert threads_of_files()
        if error:
            raise error


appending = pytest.mark.parametrize("format", ["arrow", "parquet"])


@appending
def test_a_full_disk_in_the_thread_of_a_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    path.write_text("older")
    said = rf"^cannot write {path}: File too large; nothing was left behind$"
    with full_disk(10_000_000), pytest.raises(OutputError, match=said):
        write_groups(path, format)
    assert files_of(tmp_path) == {"f": b"older"}
    assert threads_of_files() == []


@appending
@pytest.mark.parametrize("piece", [1, 2])
def test_any_error_in_the_thread_of_a_file_ends_the_run(
    tmp_path: Path, format: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = itertools.count(1)
    write_on = staging._SteadyFile.write

    def fail(self: Any, data: Any) -> int:
        if memoryview(data).nbytes > 500_000 and next(writes) == piece:
            raise MemoryError("of the thread")
        return write_on(self, data)

    monkeypatch.setattr(staging._SteadyFile, "write", fail)
    with pytest.raises(MemoryError, match="of the thread"):
        write_groups(tmp_path / "f", format)
    assert files_of(tmp_path) == {}
    assert threads_of_files() == []


@appending
def test_an_interrupt_while_the_thread_of_a_file_writes(tmp_path: Path, format: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_groups(tmp_path / "f", format, error=KeyboardInterrupt())
    assert files_of(tmp_path) == {}
    assert threads_of_files() == []


@all_formats
def test_a_symbolic_link_is_followed(tmp_path: Path, format: str) -> None:
    (tmp_path / "folder").mkdir()
    link, real = tmp_path / "link", tmp_path / "folder" / "real"
    link.symlink_to(real)
    write(link, format, ONE, make_batch(ONE, [1]))
    with pytest.raises(OutputError, match="overwrite"):
        check_output(link, format=format)
    assert link.is_symlink()
    assert len(read_features(link, format=format)) == len(read_features(real, format=format)) == 1
    beside = tmp_path / "link.metadata.json"
    assert not beside.exists()
    if (sidecar := real.with_name("real.metadata.json")).exists():
        sidecar.rename(beside)  # as in stores that link to files by other names
        assert len(read_features(link, format=format)) == 1
