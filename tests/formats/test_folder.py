"""A features folder is read as one file would be that holds the records of all shards."""

import dataclasses
import gc
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest

from bert_features.errors import OutputError
from bert_features.formats import FORMATS, FeatureFile, FeatureFolder, IdType, read_features
from bert_features.formats.folder import MAX_OPEN
from bert_features.formats.manifest import MANIFEST, Manifest
from bert_features.formats.sidecar import sidecar_path
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SIDECARS,
    SUFFIX,
    assert_all_same,
    assert_empty,
    assert_reads,
    assert_same,
    make_batch,
    mix,
    some_batches,
    write,
)
from tests.formats.feature_folders import finish, make_manifest, write_folder

# How a folder reads its shards does not depend on their format, but for the sidecars of some.
two_formats = pytest.mark.parametrize("format", ["npz", "jsonl"])


def write_many(folder: Path, format: str, count: int = 12) -> Manifest:
    """A folder of shards of two records."""
    batches = [make_batch(ONE, [i, 1], first_id=2 * i, seed=i) for i in range(count)]
    return write_folder(folder, format, ONE, *batches)


def write_both(tmp_path: Path, format: str, id_type: IdType) -> tuple[FeatureFile, FeatureFile]:
    """Six records in one file, and in four shards, of which the third is empty."""
    features = EVERYTHING
    batches = some_batches(features, id_type)
    path = tmp_path / f"one{SUFFIX[format]}"
    write(path, format, features, *batches, id_type=id_type)
    write_folder(tmp_path / "folder", format, features, *batches, id_type=id_type)
    return read_features(path), read_features(tmp_path / "folder")


@pytest.mark.parametrize(("format", "id_type"), [*zip(FORMATS, cycle(["int", "str"]))])
def test_every_way_to_a_record_gives_what_one_file_gives(
    tmp_path: Path, format: str, id_type: IdType
) -> None:
    one, folder = write_both(tmp_path, format, id_type=id_type)
    assert isinstance(folder, FeatureFolder)
    assert (folder.path, folder.format) == (tmp_path / "folder", format)
    assert (folder.features, folder.id_type) == (one.features, one.id_type)
    assert folder.metadata == one.metadata
    assert_reads(folder, list(one))
    with pytest.raises(IndexError, match=r"6 is outside \[-6, 5\]"):
        folder[6]
    with pytest.raises(OutputError, match=rf"no example of {folder.path} has the id 'none'"):
        folder.by_id("none")
    table, expected = folder[1:5].to_arrow(), one[1:5].to_arrow()
    assert table.schema.equals(expected.schema, check_metadata=True)
    assert table.to_pylist() == expected.to_pylist()
    if format == "npz":  # a copy of several shards, and what the file gives of one
        assert type(folder.ragged("sentence")[0]) is np.ndarray
        assert isinstance(folder[1:3].ragged("sentence")[0], np.memmap)


def test_an_id_that_occurs_in_two_shards(tmp_path: Path) -> None:
    batches = [make_batch(ONE, [1, 2]), make_batch(ONE, [3, 4])]
    write_folder(tmp_path / "folder", "npz", ONE, *batches)
    folder = read_features(tmp_path / "folder")
    assert folder.by_id(0).tokens == folder[0].tokens
    assert folder[1:].by_id(0).tokens == folder[2].tokens


@two_formats
def test_a_run_without_records(tmp_path: Path, format: str) -> None:
    write_folder(tmp_path / "folder", format, ONE, make_batch(ONE, []))
    folder = read_features(tmp_path / "folder", verify=True)
    assert_empty(folder)
    assert repr(folder).endswith("folder: 0 records in 1 shard of " + ONE[0].describe() + ">")


def test_what_a_path_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path / "a.npz", "parquet", 2)  # a folder's name says nothing about its format
    folder = tmp_path / "a.npz"
    monkeypatch.chdir(folder)
    for path in (folder, folder / MANIFEST, str(folder), MANIFEST, "."):
        for format in (None, "parquet"):
            assert read_features(path, format=format).ids.tolist() == [0, 1, 2, 3]
    assert read_features(folder / MANIFEST).path == folder
    message = f"the files of {folder} are parquet, but format is npz; leave format out"
    for path in (folder, folder / MANIFEST):
        with pytest.raises(OutputError, match=message):
            read_features(path, format="npz")


def test_other_programs_read_the_folder_as_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_many(tmp_path / "folder", "parquet", 3)
    found = pyarrow.dataset.dataset(tmp_path / "folder").to_table()
    assert found["unique_id"].to_pylist() == list(range(6))
    assert pandas.read_parquet(tmp_path / "folder")["unique_id"].tolist() == list(range(6))
    write_many(tmp_path / "arrow", "arrow", 3)
    assert pyarrow.dataset.dataset(tmp_path / "arrow", format="arrow").count_rows() == 6


def open_parts(folder: Path) -> set[str]:
    """The shards that this process has open or mapped."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.rpartition("/")[2] for line in (*links, *maps) if f"{folder}/" in line}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed by Linux's /proc")
@pytest.mark.parametrize("format", ["npz", "hdf5", "parquet"])
def test_only_a_few_shards_are_open(tmp_path: Path, format: str) -> None:
    manifest = write_many(tmp_path / "folder", format)
    gc.collect()
    gc.disable()  # what is dropped must be closed at once
    try:
        with read_features(manifest.folder) as folder:
            assert isinstance(folder, FeatureFolder)
            assert open_parts(manifest.folder) == set()
            seen = set()
            for i in (*range(0, 24, 2), *range(23, -1, -9)):
                assert folder[i].unique_id == i
                seen |= open_parts(manifest.folder)
                assert len(open_parts(manifest.folder)) <= MAX_OPEN
                assert len(folder._opened) <= MAX_OPEN
            assert len(seen) == 12
            assert [record.unique_id for record in folder] == list(range(24))
            folder.ragged("layer_output_0")
            folder.to_arrow()
            assert folder.ids.tolist() == list(range(24))
            assert len(open_parts(manifest.folder)) <= MAX_OPEN
        assert open_parts(manifest.folder) == set()
        assert folder[0].unique_id == 0  # opened again
        folder.close()
    finally:
        gc.enable()


def test_threads_share_a_folder(tmp_path: Path) -> None:
    write_many(tmp_path / "folder", "npz")
    folder = read_features(tmp_path / "folder")

    def read(step: int) -> list[int | str]:
        return [folder[step * i % 24].unique_id for i in range(24)]

    with ThreadPoolExecutor(8) as pool:
        for step, ids in enumerate(pool.map(read, range(9))):
            assert ids == [step * i % 24 for i in range(24)]


@two_formats
def test_a_shard_is_looked_at_when_it_is_asked_for(tmp_path: Path, format: str) -> None:
    manifest = write_many(tmp_path / "folder", format)
    for shard in range(1, 12):
        manifest.path(shard).write_bytes(b"")
    folder = read_features(tmp_path / "folder")
    assert [folder[i].unique_id for i in (0, 1)] == [0, 1]
    assert [record.unique_id for record in folder[:2]] == [0, 1]
    with pytest.raises(OutputError, match=rf"cannot read {manifest.path(7)}: it has 0 bytes, "):
        folder[14]
    received = []
    with pytest.raises(OutputError, match=rf"cannot read {manifest.path(1)}: it has 0 bytes, "):
        received.extend(record.unique_id for record in folder)
    for request in (
        lambda: folder.ids,
        folder.to_arrow,
        folder.to_pandas,
        folder.verify,
        lambda: folder.ragged("layer_output_0"),
    ):
        with pytest.raises(OutputError, match=rf"cannot read {manifest.path(1)}: it has 0 bytes"):
            request()


def remove_manifest(manifest: Manifest) -> None:
    (manifest.folder / MANIFEST).unlink()


def forget_the_end(manifest: Manifest) -> None:
    dataclasses.replace(manifest, finished=None).write()
    assert manifest.finished is not None
    for shard in (0, 2):
        manifest.finish_shard(shard, manifest.finished[shard])


def remove_two_shards(manifest: Manifest) -> None:
    for shard in (1, 3):
        manifest.path(shard).unlink()


def cut_first_shard(manifest: Manifest) -> None:
    path = manifest.path(0)
    path.write_bytes(path.read_bytes()[:-1])


def say(**changes: str) -> Callable[[Manifest], None]:
    """Makes the manifest say something else."""
    return lambda manifest: dataclasses.replace(manifest, **changes).write()  # type: ignore[arg-type]


def say_of_shards(*changes: dict[str, int]) -> Callable[[Manifest], None]:
    """Makes it say something else of the first shards, which have two records each."""

    def damage(manifest: Manifest) -> None:
        shards = list(manifest.shards)
        for i, change in enumerate(changes):
            shards[i] = shards[i].model_copy(update=change)
        dataclasses.replace(manifest, shards=tuple(shards)).write()

    return damage


@two_formats
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_manifest, r"FOLDER: Is a directory, without the _manifest\.json of a feature"),
        (forget_the_end, "FOLDER: its run is not finished: 2 of 12 shards"),
        (remove_two_shards, r"FOLDER: 2 of its 12 .*, part-00001-of-00012\.\w+ first"),
        (cut_first_shard, "FIRST: it has SIZE bytes, and the manifest records SIZE; take it from"),
        (say_of_shards({"records": 3}, {"first": 3, "records": 1}), "FIRST: it holds 2 .* 3;"),
        (say_of_shards({}, {"first": 3}), r"FOLDER/_manifest\.json: .*shard 1 .* 3, .* hold 2\)"),
        (say(id_type="str"), "FIRST: its ids are int, and the manifest records str; take it"),
        (say(format="csv"), r"FOLDER as csv: .*\(format 'csv' is unknown; al"),
    ],
)
def test_a_folder_that_is_refused(
    tmp_path: Path, format: str, damage: Callable[[Manifest], None], message: str
) -> None:
    manifest = write_many(tmp_path / "folder", format)
    damage(manifest)
    expected = (
        message.replace("FOLDER", str(manifest.folder))
        .replace("FIRST", str(manifest.path(0)))
        .replace("SIZE", r"[\d,]+")
    )
    with pytest.raises(OutputError, match=f"^cannot read {expected}") as caught:
        read_features(manifest.folder)
    assert "\n" not in str(caught.value)


@two_formats
def test_a_file_that_goes_missing_later(tmp_path: Path, format: str) -> None:
    manifest = write_many(tmp_path / "folder", format)
    folder = read_features(manifest.folder)
    manifest.path(3).unlink()
    with pytest.raises(OutputError, match=rf"cannot read {manifest.path(3)}: No such file or dir"):
        folder[6]
    if format in SIDECARS:
        sidecar = sidecar_path(manifest.path(4))
        sidecar.unlink()
        with pytest.raises(OutputError, match=rf"cannot read {sidecar}: No such file or directory"):
            folder[8]


@two_formats
def test_shards_that_do_not_fit_together(tmp_path: Path, format: str) -> None:
    """Later shards with other features, ids or counts than the first."""
    folder = tmp_path / "folder"
    folder.mkdir()
    manifest = make_manifest(folder, format, [1, 1, 1, 1, 2])
    other = tuple(dataclasses.replace(feature, layers=(-2,)) for feature in ONE)
    write(manifest.path(0), format, ONE, make_batch(ONE, [1]))
    write(manifest.path(1), format, other, make_batch(ONE, [1]))
    more = (*ONE, *mix("sequence"))
    write(manifest.path(2), format, more, make_batch(more, [1]))
    write(manifest.path(3), format, ONE, make_batch(ONE, [1], id_type="str"), id_type="str")
    write(manifest.path(4), format, ONE, make_batch(ONE, [1]))
    finish(manifest)
    opened = read_features(folder)
    assert opened[0].unique_id == 0
    first = manifest.path(0).name
    reasons = [
        rf"a feature has layers \(-2,\), and in {first} layers \(-1,\)",
        rf"a feature has name sentence, and in {first} name None",
        "its ids are str, and the manifest records int",
        "it holds 1 records, and the manifest records 2",
    ]
    for shard, reason in enumerate(reasons, 1):
        with pytest.raises(OutputError, match=f"cannot read {manifest.path(shard)}: {reason}"):
            opened[shard]


@two_formats
def test_verify(tmp_path: Path, format: str, caplog: pytest.LogCaptureFixture) -> None:
    manifest = write_many(tmp_path / "folder", format, 6)
    folder = read_features(manifest.folder, verify=True)
    assert folder.verify() == ()
    assert caplog.messages == []
    for path in sorted(manifest.folder.glob("part-00003-*")):
        content = path.read_bytes()
        for place in range(0, len(content), max(len(content) // 20, 1)):
            changed = bytearray(content)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(OutputError, match=rf"cannot read {manifest.path(3)}") as caught:
                read_features(manifest.folder, verify=True)
            assert "\n" not in str(caught.value)
        path.write_bytes(content)
    read_features(manifest.folder, verify=True)


def exchange_shards(manifest: Manifest, one: int, other: int) -> None:
    """Two shards of one size change places: each is as it was written, but not where."""
    assert manifest.finished is not None
    assert manifest.finished[one].bytes == manifest.finished[other].bytes
    for of_shard in (lambda path: path, sidecar_path):
        a, b = of_shard(manifest.path(one)), of_shard(manifest.path(other))
        if a.exists():
            content = a.read_bytes()
            shutil.copy(b, a)
            b.write_bytes(content)


@pytest.mark.parametrize("format", FORMATS)
def test_shards_that_change_places_are_found_when_they_are_read(
    tmp_path: Path, format: str
) -> None:
    """Only ids differ; in HDF5, whose ends need not hold ids, values too."""
    is_hdf5 = format == "hdf5"  # files of several times the size that is compared
    batches = [make_batch(ONE, [40_000], first_id=i, seed=is_hdf5 * i) for i in range(3)]
    manifest = write_folder(tmp_path / "folder", format, ONE, *batches)
    exchange_shards(manifest, 1, 2)
    folder = read_features(manifest.folder)
    assert folder[0].unique_id == 0
    message = rf"cannot read {manifest.path(1)}: its first or last 64 KiB are not those that th"
    with pytest.raises(OutputError, match=message):
        folder[1]


@pytest.mark.parametrize("format", sorted(SIDECARS))
def test_verify_finds_another_sidecar(tmp_path: Path, format: str) -> None:
    """One with the same content in other bytes, which its own checksums do not cover."""
    manifest = write_many(tmp_path / "folder", format, 3)
    sidecar = sidecar_path(manifest.path(1))
    sidecar.write_text(sidecar.read_text() + "\n")
    read_features(manifest.path(1), verify=True)
    with pytest.raises(OutputError, match=rf"cannot read {sidecar}: its bytes have the CRC-32C "):
        read_features(manifest.folder, verify=True)


def test_verify_also_compares_the_checksums_of_the_shards(tmp_path: Path) -> None:
    """A shard that was damaged before the manifest had its checksum."""
    manifest = write_many(tmp_path / "folder", "npz", 3)
    path = manifest.path(2)
    content = bytearray(path.read_bytes())
    content[content.index(make_batch(ONE, [2, 1], 4, 2).features["layer_output_0"].tobytes())] ^= 1
    path.write_bytes(content)
    finish(dataclasses.replace(manifest, finished=None))
    with pytest.raises(OutputError, match=rf"cannot read {path} as npz: .*layer_output_0 is not"):
        read_features(manifest.folder, verify=True)


@pytest.mark.slow
@two_formats
def test_a_folder_at_an_address_reads_as_a_local_one(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    write_many(tmp_path / "folder", format)
    for path in (tmp_path / "folder").iterdir():
        fsspec.filesystem("memory").pipe_file(f"/{format}/{path.name}", path.read_bytes())
    local, folder = read_features(tmp_path / "folder"), read_features(f"memory://{format}/")
    assert_all_same(folder, list(local))
    assert_same(pickle.loads(pickle.dumps(folder))[7], local[7])
    assert folder.to_arrow().equals(local.to_arrow())
    for values, expected in zip(
        folder[3:9].ragged("layer_output_0"), local[3:9].ragged("layer_output_0"), strict=True
    ):
        np.testing.assert_array_equal(values, expected)
    records = iter(folder)
    next(records)
    folder.close()  # the copy that is read stays
    assert len(list(records)) == 23
    folder.close()
    del records
    gc.collect()
    assert list((tmp_path / "copies").iterdir()) == []
