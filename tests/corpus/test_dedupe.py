"""Runs into a folder whose texts repeat: several shards, several processes, kills."""

import os
import signal
import time

import pytest

from bert_features import extract
from bert_features.corpus.repair import repair
from bert_features.corpus.settings import restore_settings
from bert_features.formats.manifest import Manifest
from tests.cli.forks import fork
from tests.corpus.test_job import StopRun, shards_of, stop_after

OPTIONS = ["--uncased", "--max-seq-length=8", "--batch-size=4", "--layers=-1"]


@pytest.fixture
def many(tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("a b\nthe jacksonville is not\n\nit is\n" * 1000)
    return path


@pytest.fixture
def whole(config, many, tmp_path):
    """The shards of a run that computes every text."""
    extract(settings_of(config, uniform_batches=True), many, f"{tmp_path}/whole/")
    return shards_of(tmp_path / "whole")


def settings_of(config, **settings):
    return config(layers=(-1,), shard_examples=250, **settings)


def command(toy, many, out, *options):
    """The same run on the command line."""
    settings = [*OPTIONS, "--shard-examples=250", "--checkpoint", toy]
    return ["extract", many, "-o", f"{out}/", *settings, *options]


def hidden_in(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def wait_for_shards(out, process, count=2):
    while len(list((out / ".finished").glob("*.json"))) < count:
        assert process.is_alive()
        time.sleep(0.005)


def test_the_shards_have_the_same_bytes(config, texts, tmp_path):
    extract(config(uniform_batches=True), texts, f"{tmp_path}/plain/")
    summary = extract(config(dedupe=True), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "plain")
    assert summary.counts.examples_reused == 20 - 7  # also of texts of another shard
    assert not hidden_in(tmp_path / "out")
    settings = Manifest.read(tmp_path / "out").run
    assert settings["settings"]["uniform_batches"] is True
    assert not {"dedupe", "cache", "cache_gb"} & settings["settings"].keys()


def test_a_stopped_run_goes_on_with_and_without_dedupe(config, texts, tmp_path):
    extract(config(uniform_batches=True), texts, f"{tmp_path}/plain/")
    with pytest.raises(StopRun):
        extract(config(dedupe=True), texts, f"{tmp_path}/out/", progress=stop_after(13))
    assert not hidden_in(tmp_path / "out")
    extract(config(uniform_batches=True), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "plain")


def test_a_damaged_shard_is_repaired_with_the_same_bytes(config, texts, tmp_path):
    out = tmp_path / "out"
    extract(config(dedupe=True), texts, f"{out}/")
    expected = shards_of(out)
    assert restore_settings(Manifest.read(out)).dedupe is False
    os.truncate(out / "part-00001-of-00004.parquet", 100)
    repair(out)
    assert shards_of(out) == expected


@pytest.mark.slow
def test_two_processes_share_what_they_know(config, many, whole, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPU cores")
    summary = extract(settings_of(config, dedupe=True), many, f"{tmp_path}/two/", processes=2)
    assert shards_of(tmp_path / "two") == whole
    # Each process may compute a text that the other is just computing.
    assert summary.counts.examples_reused >= 4000 - 2 * 4
    assert not hidden_in(tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_goes_on_and_leaves_nothing(toy, many, whole, tmp_path, ending):
    out = tmp_path / "out"
    with fork(*command(toy, many, out, "--dedupe")) as process:
        wait_for_shards(out, process)
        os.kill(process.pid, ending)
        process.join()
    assert bool(hidden_in(out)) == (ending == signal.SIGKILL)
    with fork(*command(toy, many, out, "--dedupe")) as process:
        process.join()
        assert process.exitcode == 0
    assert shards_of(out) == whole
    assert not hidden_in(out)


@pytest.mark.slow
def test_two_runs_at_once_share_a_cache_that_outlives_a_kill(toy, many, whole, tmp_path):
    cache = ["--cache", tmp_path / "cache"]
    with fork(*command(toy, many, tmp_path / "killed", *cache)) as process:
        wait_for_shards(tmp_path / "killed", process)
        os.kill(process.pid, signal.SIGKILL)
    folders = [tmp_path / "one", tmp_path / "two"]
    with (
        fork(*command(toy, many, folders[0], *cache), stdout=tmp_path / "1.txt") as one,
        fork(*command(toy, many, folders[1], *cache), stdout=tmp_path / "2.txt") as two,
    ):
        one.join()
        two.join()
        assert one.exitcode == two.exitcode == 0
    for folder, name in zip(folders, ("1.txt", "2.txt"), strict=True):
        assert shards_of(folder) == whole
        line = "reused     4,000 of 4,000 examples (100%), 4,000 from the cache"
        assert line in (tmp_path / name).read_text().splitlines()
