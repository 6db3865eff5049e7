"""The manifest of a features folder: what is written is read, and damage is one clear error."""

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert_features.config.shards import MAX_COUNT
from bert_features.errors import OutputError
from bert_features.formats.manifest import FINISHED, MANIFEST, FinishedEntry, Manifest
from tests.formats.feature_folders import make_manifest


def entry(number: int) -> FinishedEntry:
    return FinishedEntry(
        bytes=100 + number,
        crc32c="89abcdef",
        sidecar_crc32c=None,
        ends_crc32c="01234567",
        seconds=0.5,
        counts={"lines": 3},
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
        # What somebody else may have written.
        (change("suffix", to="/../../victim/new.parquet"), "suffix: String should match pattern"),
        (change("suffix", to="."), "suffix: String should match pattern"),
        (change("suffix", to=".npz\n"), "suffix: String should match pattern"),
        (change("format", to="\x1b[2J"), "format: String should match pattern"),
        (change("\x1b[2J\n" * 99, to=1), r"\\x1b\[2J\\n"),
        (change("inputs", 0, "path", to="a\0b"), r"inputs\.0\.path: String should match pattern"),
        (change("inputs", 0, "modified_ns", to=10**400), r"inputs\.0\.modified_ns: "),
        (change("shards", 1, "records", to=2**63), r"shards\.1\.records: .* less than"),
        (change("shards", 1, "records", to=2**63 - 1), "its shards hold 9223372036854775810"),
        (change("shards", 1, "first", to=2), "shard 1 begins at example 2"),
        (change("shards", 1, "input", to=1), "shard 1 is of input 1, and there are 1"),
        (change("shards", 1, "crc32c", to="x"), r"shards\.1\.crc32c: String should match pattern"),
        (change("finished", 0, "seconds", to=math.inf), r"finished\.0\.seconds: Input should be"),
        (change("finished", 0, "seconds", to=math.nan), r"finished\.0\.seconds: Input should be"),
        (change("finished", 0, "seconds", to=10**400), r"finished\.0\.seconds: Input should be"),
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
    assert str(e.value).isprintable()
    assert len(str(e.value)) < 500
    assert "extract again with --overwrite" in str(e.value)


@pytest.mark.slow
def test_more_shards_than_names_have_digits_for(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path, "npz", [0])
    shards = json.dumps([manifest.shards[0].model_dump()] * (MAX_COUNT + 1))
    manifest.write()
    path = tmp_path / MANIFEST
    path.write_text(
        re.sub(r'"shards": \[.*?\]', f'"shards": {shards}', path.read_text(), flags=re.S)
    )
    with pytest.raises(OutputError, match="at most 99999 items"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST, f"{FINISHED}/00000.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    manifest = make_manifest(tmp_path, "npz", [1])
    manifest.write()
    manifest.begin()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(OutputError, match=f"{name}: it is a pipe or a device, not a file"):
        list(Manifest.read(tmp_path).finished_shards())


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"a": 1}']
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(OutputError, match=r"cannot read .*it is damaged, or not one of bert_f"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("version", [0, 1, "2", None, 10**400])
def test_the_manifest_of_another_version(tmp_path: Path, version: Any) -> None:
    make_manifest(tmp_path, "npz", [3, 2]).write()
    path = tmp_path / MANIFEST
    content = json.loads(path.read_text()) | {"manifest_version": version, "new": 1}
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match=f"manifest_version is {version!r:.40}, .* reads 2"):
        Manifest.read(tmp_path)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path / "absent", "npz", [1])
    with pytest.raises(OutputError, match=r"_manifest\.json"):
        manifest.write()
    with pytest.raises(OutputError, match="absent: No such file"):
        manifest.finish_shard(0, entry(0))
