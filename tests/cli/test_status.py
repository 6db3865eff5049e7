"""status: a few lines, and status 0 if the folder is finished and whole."""

import pytest

from bert_features.cli import status as command
from bert_features.corpus.folder import Holder, holding
from bert_features.corpus.status import Status
from tests.cli.command_line import SMALL, run
from tests.corpus.test_status import record
from tests.formats.feature_folders import make_manifest


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """A run of three shards of 1,000 examples, two of which are finished."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("1234567")
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = make_manifest(folder, "parquet", [1000, 1000, 1000])
    manifest.write()
    for shard in (0, 1):
        record(manifest, shard, seconds=30.0)
    return manifest


def rows(done):
    """What the lines say, by their names."""
    return dict(line.split(None, 1) for line in done.stdout.splitlines())


def test_a_run_that_stopped(manifest):
    done = run("status", manifest.folder)
    assert done.exit_code == 1
    found = rows(done)
    assert found.pop("inputs") == (  # its time is unknown
        "in.txt: not found, or of another size or time than the run read (names are relative to "
        "the folder in which the run began)"
    )
    assert found == {
        "state": "stopped; run the same command to resume it",
        "shards": "2 of 3 finished",
        "examples": "2,000 of 3,000",
        "tokens": "14,000 in the finished shards",
        "speed": "233 tokens/s for each process; computed in 1 min of process time so far",
    }


def test_a_run_that_goes_on(manifest):
    with holding(manifest.folder, processes=2):
        done = run("status", manifest.folder)
    assert done.exit_code == 1
    assert rows(done)["state"].startswith("running: process ")
    assert rows(done)["state"].endswith(", which computes with 2 processes")
    assert rows(done)["left"] == "about 15 s at this speed"


def test_files_that_are_missing_are_named(manifest):
    for shard in (0, 1):
        manifest.path(shard).unlink()
    found = rows(run("status", manifest.folder))
    assert found["missing"].startswith(
        "part-00000-of-00003.parquet, part-00001-of-00003.parquet: not found, or of another size"
    )
    assert found["shards"] == "0 of 3 finished"


def test_few_names_for_many_files(tmp_path, monkeypatch):
    paths = tuple(tmp_path / f"part-{i}" for i in range(1500))
    lines = command._describe(Status(tmp_path, "finished", shards=1500, missing=paths))
    assert lines["missing"].startswith("part-0, part-1, part-2 and 1,497 more: not found")


def test_a_run_that_reads_its_inputs(tmp_path):
    holder = Holder(7, "host")
    assert command._describe(Status(tmp_path, "running", (holder,))) == {
        "state": "running: process 7 on host; it still reads its inputs"
    }


def test_a_finished_run(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a b\n" * 5)
    line = ["extract", tmp_path / "in.txt", "-o", f"{tmp_path}/out/", "--checkpoint", toy]
    assert run(*line, *SMALL, "--layers=-1", "--shard-examples", "2").exit_code == 0
    done = run("status", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "state      finished\nshards     3 of 3 finished\n" in done.stdout
    (tmp_path / "out" / "part-00001-of-00003.parquet").unlink()
    assert run("status", tmp_path / "out").exit_code == 1
