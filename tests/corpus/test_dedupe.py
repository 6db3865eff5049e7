"""Runs into a folder whose texts repeat: several shards, kills; `test_processes` has several."""

import os
import signal

import pytest

from bert_features import extract
from bert_features.corpus.job import repair
from tests.cli.forks import fork
from tests.corpus.runs import (
    DIFFERENT,
    EXAMPLES,
    MANY,
    SHARDS,
    computing_each,
    config_of,
    extract_until,
    shards_in,
    shards_of,
    wait_until,
)
from tests.markers import of_release

# With AVX2 alone oneDNN rounds the last row of 4 x 8 tokens in another way, and none of 16 x 8.
OPTIONS = ["--uncased", "--max-seq-length=8", "--batch-size=16", "--layers=-1"]
OPTIONS += [f"--shard-examples={MANY // SHARDS}"]


@pytest.fixture(scope="module")
def computed(toy, many, tmp_path_factory):
    """The shards of a run that computes every text."""
    out = tmp_path_factory.mktemp("computed") / "out"
    with computing_each():
        extract(config_of(toy, dedupe=True, batch_size=16), many, f"{out}/")
    return shards_of(out)


def begin(toy, many, out, *options, **streams):
    """The same run in a fork."""
    line = ["extract", many, "-o", f"{out}/", "--checkpoint", toy, *OPTIONS, *options]
    return fork(*line, **streams)


def hidden_in(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def kill_in_the_middle(process, out, ending=signal.SIGKILL):
    wait_until(lambda: not process.is_alive() or shards_in(out) >= 2)
    assert process.is_alive()
    os.kill(process.pid, ending)
    process.join()


def test_the_shards_have_the_same_bytes(config, texts, tmp_path):
    with computing_each():
        extract(config(dedupe=True), texts, f"{tmp_path}/plain/")
    summary = extract(config(dedupe=True), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "plain")
    # Also of texts of another shard.
    assert summary.counts.examples_reused == EXAMPLES - DIFFERENT
    assert not hidden_in(tmp_path / "out")


def test_a_stopped_run_goes_on_with_and_without_a_cache(config, texts, tmp_path):
    with computing_each():
        extract(config(dedupe=True), texts, f"{tmp_path}/plain/")
    extract_until(13, config(dedupe=True), texts, f"{tmp_path}/out/")
    assert not hidden_in(tmp_path / "out")
    extract(config(cache=str(tmp_path / "cache")), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "plain")


def test_a_damaged_shard_is_repaired_with_the_same_bytes(config, texts, tmp_path):
    out = tmp_path / "out"
    extract(config(dedupe=True), texts, f"{out}/")
    expected = shards_of(out)
    os.truncate(out / "part-00001-of-00004.parquet", 100)
    repair(out)
    assert shards_of(out) == expected


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, of_release(signal.SIGTERM)])
def test_a_killed_run_goes_on_and_leaves_nothing(toy, many, computed, tmp_path, ending):
    out = tmp_path / "out"
    with begin(toy, many, out, "--dedupe") as process:
        kill_in_the_middle(process, out, ending)
    assert bool(hidden_in(out)) == (ending == signal.SIGKILL)
    extract(config_of(toy, dedupe=True, batch_size=16), many, out)
    assert shards_of(out) == computed
    assert not hidden_in(out)


@pytest.mark.slow
@pytest.mark.release
def test_two_runs_at_once_share_a_cache_that_outlives_a_kill(toy, many, computed, tmp_path):
    cache = ["--cache", tmp_path / "cache"]
    with begin(toy, many, tmp_path / "killed", *cache) as process:
        kill_in_the_middle(process, tmp_path / "killed")
    one, two = tmp_path / "one", tmp_path / "two"
    with (
        begin(toy, many, one, *cache, stdout=tmp_path / "1.txt") as first,
        begin(toy, many, two, *cache, stdout=tmp_path / "2.txt") as second,
    ):
        first.join()
        second.join()
        assert first.exitcode == second.exitcode == 0
    assert shards_of(one) == shards_of(two) == computed
    line = f"reused     {MANY:,} of {MANY:,} examples (100%), {MANY:,} from the cache"
    for name in ("1.txt", "2.txt"):
        assert line in (tmp_path / name).read_text().splitlines()
