"""Runs into a folder that are ended in their middle: nothing is lost, and no byte is another."""

import random
import re

import pytest

from tests.cli.forks import fork
from tests.corpus.runs import shards_in, shards_of, wait_until

pytestmark = pytest.mark.slow

LINES = 2000
OPTIONS = ["--uncased", "--max-seq-length=8", "--layers=-1", "--shard-examples=100"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    words = ["this", "is", "jacksonville", "no", "not", "it"]
    chosen = random.Random(3)
    lines = [" ".join(chosen.choices(words, k=chosen.randint(0, 9))) for _ in range(LINES)]
    lines[1200:1300] = ["this is not jacksonville it is"] * 100  # the largest shard, of 20
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def run(toy, texts):
    """Begins the run in a fork; see `fork`."""

    def begin(out, **streams):
        return fork("extract", texts, "-o", f"{out}/", "--checkpoint", toy, *OPTIONS, **streams)

    return begin


@pytest.fixture(scope="module")
def finish(run):
    """Runs the command undisturbed; gives the shards of the folder."""

    def finish(out):
        with run(out) as process:
            process.join(300)
            assert process.exitcode == 0
        return shards_of(out)

    return finish


@pytest.fixture(scope="module")
def whole(finish, tmp_path_factory):
    """The shards of a run that nothing disturbed."""
    return finish(tmp_path_factory.mktemp("undisturbed") / "out")


def test_sigterm_drops_the_shard_that_is_open(run, finish, whole, tmp_path):
    for attempt in range(5):  # a machine with other load may look when the run has ended
        out, said = tmp_path / f"out{attempt}", tmp_path / f"said{attempt}"
        with run(out, stderr=said) as process:
            wait_until(lambda out=out, run=process: shards_in(out) or not run.is_alive())
            process.terminate()
            process.join(60)
        if process.exitcode != 0:
            break
    assert process.exitcode == 143
    line = "interrupted by SIGTERM; finished shards are kept; the same command resumes the run"
    assert said.read_text().splitlines()[-1] == f"bert-features: {line}"
    assert shards_of(out).items() <= whole.items()
    assert not list(out.glob(".part*"))
    assert finish(out) == whole


def test_a_full_disk_costs_one_shard(run, finish, whole, tmp_path):
    *_, second, largest = sorted(map(len, whole.values()))
    out, said = tmp_path / "out", tmp_path / "said"
    with run(out, stderr=said, max_file_size=(second + largest) // 2) as process:
        process.join(300)
        assert process.exitcode == 1
    *_, kept, error = said.read_text().splitlines()
    assert kept.startswith("12 of 20 shards are finished and kept; once the cause is gone")
    assert re.match(r"bert-features: cannot write .*/part-00012.*: File too large", error)
    assert len(shards_of(out)) == 12
    assert not list(out.glob(".part*"))
    assert finish(out) == whole
