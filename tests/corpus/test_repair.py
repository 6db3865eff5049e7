"""Repair: missing and damaged shards are as they were, or nothing is touched."""

import os

import pytest

from bert_features import extract
from bert_features.corpus import resuming
from bert_features.corpus.job import repair
from bert_features.errors import ConfigError, InputError
from bert_features.formats.manifest import Manifest
from tests.corpus.runs import extract_until, shards_of


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text("a b\nit is\nno\nthis is jack ?\n" * 3)
    return sorted((tmp_path / "in").iterdir())


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "parquet"},
        {"format": "jsonl", "level": "sequence", "pooling": "auto"},
        {"layers": (-1,), "outputs": [{"name": "x", "level": "word", "pooling": "first"}]},
    ],
    ids=str,
)
def test_damaged_shards_are_as_they_were(config, inputs, tmp_path, settings):
    extract(config(**settings), inputs, f"{tmp_path}/out/")
    manifest = Manifest.read(tmp_path / "out")
    before = shards_of(tmp_path / "out")
    assert repair(tmp_path / "out") == ()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    flip_a_bit(manifest.path(0))
    manifest.path(2).unlink()
    os.truncate(manifest.path(3), 7)
    assert repair(tmp_path / "out") == (manifest.path(0), manifest.path(2), manifest.path(3))
    assert shards_of(tmp_path / "out") == before
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert all(now[path] == times[path] for path in times if path.name.startswith("part-00001"))
    names = {path.name.partition(".")[0] for path in (tmp_path / "out").iterdir()}
    assert names == {"_manifest", *(f"part-0000{i}-of-00004" for i in range(4))}
    assert Manifest.read(tmp_path / "out").shards == manifest.shards
    assert repair(tmp_path / "out") == ()


@pytest.mark.parametrize("damage", [os.unlink, flip_a_bit])
def test_a_sidecar_is_repaired(config, inputs, tmp_path, damage):
    extract(config(format="jsonl"), inputs, f"{tmp_path}/out/")
    before = shards_of(tmp_path / "out")
    (path,) = (tmp_path / "out").glob("part-00001*.metadata.json")
    damage(path)
    assert len(repair(tmp_path / "out")) == 1
    assert shards_of(tmp_path / "out") == before


def test_a_run_that_is_not_finished_is_finished(config, inputs, tmp_path):
    extract(config(), inputs, f"{tmp_path}/whole/")
    extract_until(8, config(), inputs, f"{tmp_path}/out/")
    manifest = Manifest.read(tmp_path / "out")
    flip_a_bit(manifest.path(0))
    assert repair(tmp_path / "out") == tuple(map(manifest.path, range(4)))
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")


@pytest.mark.parametrize("again", ["repair", "extract"])
@pytest.mark.usefixtures("quick")
def test_what_a_killed_repair_left_is_removed(config, inputs, tmp_path, again):
    out = tmp_path / "out"
    extract(config(), inputs, f"{out}/")
    before = {path.name for path in out.iterdir()}
    (out / ".part-00001-of-00004.parquet.0123abcd.partial" / "new").mkdir(parents=True)
    (out / "._manifest.json.0123abcd.partial").mkdir()
    (out / ".finished").mkdir()
    (out / ".finished" / "00000.json").write_text("{")
    (out / ".running").touch()
    (out / ".lock").touch()
    kept = ".other.npz.0123abcd.partial"  # of some other program's file
    (out / kept).mkdir()
    if again == "repair":
        assert repair(out) == ()
    else:
        extract(config(), inputs, f"{out}/")
    assert {path.name for path in out.iterdir()} == before | {kept}
    for name in (".finished", "._manifest.json.0123abcd.partial"):  # each of them alone
        (out / name).mkdir()
        repair(out)
        assert not (out / name).exists()


def assert_refused(folder, error, message):
    before = shards_of(folder)
    with pytest.raises(error, match=message):
        repair(folder)
    assert shards_of(folder) == before


@pytest.fixture
def damaged(config, inputs, tmp_path):
    """A folder with a damaged shard."""
    extract(config(), inputs, f"{tmp_path}/out/")
    flip_a_bit(Manifest.read(tmp_path / "out").path(1))
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("recorded", "other", "message"),
    [
        ('"keras": "', '"keras": "1.', r"with versions\.keras '1\."),
        ('"device": "cpu"', '"device": "tpu"', r"device 'tpu', now 'cpu'"),
    ],
)
def test_other_versions_and_devices_are_refused(damaged, recorded, other, message):
    path = damaged / "_manifest.json"
    assert recorded in path.read_text()
    path.write_text(path.read_text().replace(recorded, other))
    assert_refused(damaged, ConfigError, message)


def test_a_changed_input_is_refused(damaged, inputs):
    inputs[0].write_text(inputs[0].read_text().replace("it is", "is it"))
    os.utime(inputs[0], (1, 1))
    assert_refused(damaged, InputError, r"a\.txt has changed since this run began")
    inputs[0].unlink()
    assert_refused(damaged, InputError, r"cannot read .*a\.txt")


def test_an_input_that_is_as_it_was_is_not_cut_again(damaged, monkeypatch):
    monkeypatch.setattr(resuming, "cut_input", None)
    assert len(repair(damaged)) == 1
