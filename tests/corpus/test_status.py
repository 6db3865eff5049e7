"""The status of a folder: what is finished, what is missing, who computes."""

import os

import pytest

from bert_features import extract
from bert_features.corpus.folder import holding
from bert_features.corpus.status import Status, read_status
from bert_features.errors import OutputError
from bert_features.formats.manifest import Manifest
from tests.corpus.runs import extract_until
from tests.formats.feature_folders import describe_shard, finish, make_manifest

TOKENS = 7  # of each example of `folder`


def record(manifest, shard, seconds=2.0):
    """Writes a made-up file of a shard, and its record as that of a finished one."""
    manifest.path(shard).write_bytes(b"12345")
    entry = describe_shard(manifest, shard)
    counts = {**entry.counts, "tokens": TOKENS * entry.counts["examples"]}
    manifest.finish_shard(shard, entry.model_copy(update={"seconds": seconds, "counts": counts}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run of four shards, two of which are finished; its input does not exist any more."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = make_manifest(folder, "parquet", [10, 10, 10, 5])
    manifest.write()
    manifest.begin()
    record(manifest, 0)
    record(manifest, 2, seconds=3.0)
    return manifest


def files_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_run_that_stopped(folder):
    before = files_in(folder.folder)
    status = read_status(folder.folder)
    assert status == Status(
        folder.folder,
        "stopped",
        shards=4,
        finished_shards=2,
        examples=35,
        finished_examples=20,
        finished_tokens=140,
        seconds=5.0,
        changed_inputs=("in.txt",),
    )
    assert status.tokens_per_second == 28
    assert status.seconds_left is None
    assert not status.is_whole
    assert files_in(folder.folder) == before


@pytest.mark.parametrize(("processes", "left"), [(1, 3.75), (3, 1.25)])
def test_a_run_that_goes_on(folder, processes, left):
    with holding(folder.folder, processes):
        status = read_status(folder.folder)
        assert (status.state, status.holders[0].process) == ("running", os.getpid())
        assert status.seconds_left == left  # 15 examples, of which one takes a quarter of a second
        assert not status.is_whole
    assert read_status(folder.folder).state == "stopped"


def test_a_run_that_has_finished_nothing_has_no_estimate(folder):
    for path in (folder.folder / ".finished").iterdir():
        path.unlink()
    with holding(folder.folder):
        status = read_status(folder.folder)
    assert (status.tokens_per_second, status.seconds_left) == (0.0, None)


def test_a_run_that_reads_its_inputs(tmp_path):
    with holding(tmp_path / "out"):
        status = read_status(tmp_path / "out")
        assert (status.state, status.shards) == ("running", 0)
        assert not status.is_whole


def test_files_that_are_missing_or_of_another_size(folder):
    folder.path(0).unlink()
    folder.path(2).write_bytes(b"123456")
    status = read_status(folder.folder)
    assert status.missing == (folder.path(0), folder.path(2))
    assert (status.finished_shards, status.finished_examples, status.finished_tokens) == (0, 0, 0)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_finished_run(config, tmp_path, format):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a b\nit is\n" * 4)
    inputs = sorted(tmp_path.glob("*.txt"))
    extract_until(9, config(format=format), inputs, f"{tmp_path}/out/")
    out = tmp_path / "out"
    assert (read_status(out).state, read_status(out).finished_examples) == ("stopped", 8)
    summary = extract(config(format=format), inputs, out)
    status = read_status(out)
    assert status.is_whole
    assert status.state == "finished"
    assert (status.shards, status.finished_shards) == (6, 6)
    assert (status.examples, status.finished_examples) == (24, 24)
    assert status.finished_tokens == summary.counts.tokens
    assert status.seconds > 0
    assert status.changed_inputs == ()
    inputs[0].unlink()
    os.utime(inputs[1], (1, 1))
    assert read_status(out).changed_inputs == (str(inputs[0]), str(inputs[1]))
    assert read_status(out).is_whole  # what is there does not depend on them any more
    sidecars = list(out.glob("*.metadata.json"))
    lost = (sidecars or [Manifest.read(out).path(1)])[0]
    lost.unlink()
    status = read_status(out)
    assert not status.is_whole
    assert len(status.missing) == 1
    assert lost.name.startswith(status.missing[0].name)


def test_a_run_that_ends_while_its_records_are_read(folder, monkeypatch):
    for shard in range(4):
        record(folder, shard)
    read, seen = Manifest.finished_shards, []

    def end_first(manifest):
        if not seen:
            seen.append(manifest)
            finish_by_another(folder)
        return read(manifest)

    monkeypatch.setattr(Manifest, "finished_shards", end_first)
    assert read_status(folder.folder).finished_shards == 4


def finish_by_another(manifest):
    import shutil

    for shard in range(4):
        manifest.path(shard).write_bytes(b"12345")
    finish(manifest)
    shutil.rmtree(manifest.folder / ".finished")


def test_a_damaged_record_is_named(folder):
    (folder.folder / ".finished" / "00002.json").write_text("{")
    with pytest.raises(OutputError, match=r"00002\.json: it is damaged"):
        read_status(folder.folder)
