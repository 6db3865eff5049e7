"""The manifest of a features folder: what is written is read, and damage is one clear error."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert_features.errors import OutputError
from bert_features.formats.manifest import FINISHED, MANIFEST, FinishedEntry, Manifest
from tests.formats.feature_folders import make_manifest


def entry(number: int) -> FinishedEntry:
    return FinishedEntry(
        bytes=100 + number, crc32c="89abcdef", sidecar_crc32c=None, seconds=0.5, counts={"lines": 3}
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path, "jsonl", [3, 0, 2], "str")
    manifest.write()
    assert Manifest.read(tmp_path) == manifest
    assert manifest.records == 5
    assert [manifest.path(i).name for i in (0, 2)] == [
        "part-00000-of-00003.jsonl",
        "part-00002-of-00003.jsonl",
    ]
    finished = dataclasses.replace(manifest, finished=(entry(0), entry(1), entry(2)))
    finished.write()
    assert Manifest.read(tmp_path) == finished
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_finished_shards(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path, "npz", [1] * 12)
    manifest.write()
    assert list(manifest.finished_shards()) == []
    for shard in (10, 2):
        manifest.finish_shard(shard, entry(shard))
    expected = [(2, entry(2)), (10, entry(10))]
    assert list(manifest.finished_shards()) == expected
    assert list(Manifest.read(tmp_path).finished_shards()) == expected
    manifest.finish_shard(2, entry(7))  # computed again
    assert list(manifest.finished_shards()) == [(2, entry(7)), (10, entry(10))]
    (tmp_path / FINISHED / "00012.json").write_text("of no shard")
    assert len(list(manifest.finished_shards())) == 2

    whole = dataclasses.replace(manifest, finished=tuple(map(entry, range(12))))
    assert list(whole.finished_shards()) == list(enumerate(map(entry, range(12))))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Invalid JSON: EOF"),
        ('{"bytes": 1', "Invalid JSON: EOF"),
        ("{}", "bytes: Field required"),
    ],
)
def test_a_damaged_record_of_a_shard(tmp_path: Path, content: str, reason: str) -> None:
    manifest = make_manifest(tmp_path, "npz", [1, 1])
    manifest.finish_shard(0, entry(0))
    manifest.finish_shard(1, entry(1))
    record = tmp_path / FINISHED / "00001.json"
    record.write_text(content)
    found = manifest.finished_shards()
    assert next(found) == (0, entry(0))
    with pytest.raises(OutputError, match=rf"cannot read {record}: it is damaged, .*\({reason}"):
        next(found)


def change(*keys: Any, to: Any) -> Callable[[Any], None]:
    def apply(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content.pop("shards"), "shards: Field required"),
        (lambda content: content.pop("manifest_version"), "it has no manifest_version"),
        (change("shards", to=[]), "it lists no shards"),
        (change("shards", 1, "records", to=-1), r"shards\.1\.records: Input should be greater"),
        (change("shards", 1, "records", to="2"), r"shards\.1\.records: Input should be a valid in"),
        (change("shards", 0, "size", to=2), r"shards\.0\.size: Extra inputs are not permitted"),
        (change("id_type", to="float"), "id_type: Input should be 'int' or 'str'"),
        (change("finished", to=[]), "2 shards, 0 finished"),
        (change("finished", 1, "bytes", to=None), r"finished\.1\.bytes: Input should be a valid"),
        (lambda content: content["finished"].pop(), "2 shards, 1 finished"),
    ],
)
def test_a_damaged_manifest(tmp_path: Path, damage: Callable[[Any], None], reason: str) -> None:
    manifest = make_manifest(tmp_path, "npz", [3, 2])
    dataclasses.replace(manifest, finished=(entry(0), entry(1))).write()
    path = tmp_path / MANIFEST
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match=rf"cannot read {path}: it is damaged, .*\({reason}") as e:
        Manifest.read(tmp_path)
    assert "\n" not in str(e.value)
    assert "extract again with --overwrite" in str(e.value)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"a": 1}']
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(OutputError, match=r"cannot read .*it is damaged, or not one of bert_f"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_the_manifest_of_another_version(tmp_path: Path, version: Any) -> None:
    make_manifest(tmp_path, "npz", [3, 2]).write()
    path = tmp_path / MANIFEST
    content = json.loads(path.read_text()) | {"manifest_version": version, "new": 1}
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match=f"its manifest_version is {version!r}, .* reads 1; use "):
        Manifest.read(tmp_path)


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(OutputError, match=rf"cannot read {folder}/manifest.json: No such file"):
            Manifest.read(folder)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path / "absent", "npz", [1])
    with pytest.raises(OutputError, match=r"cannot write .*manifest\.json"):
        manifest.write()
    with pytest.raises(OutputError, match=r"cannot write .*absent: No such file"):
        manifest.finish_shard(0, entry(0))
