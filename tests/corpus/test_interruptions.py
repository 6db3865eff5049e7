"""Runs into a folder that are ended in their middle: nothing is lost, and no byte is another."""

import random
import re
import shutil
import time

import pytest

from bert_features.corpus.status import read_status
from tests.cli.forks import fork
from tests.corpus.test_job import shards_of

pytestmark = pytest.mark.slow

KILLS = 10
LINES = 2000
OPTIONS = ["--uncased", "--max-seq-length=8", "--layers=-1", "--shard-examples=100"]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    words = ["this", "is", "jacksonville", "no", "not", "it"]
    chosen = random.Random(3)
    lines = (" ".join(chosen.choices(words, k=chosen.randint(0, 9))) for _ in range(LINES))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def run(toy, texts):
    """Begins the run in a fork; see `fork`."""

    def begin(out, **streams):
        return fork("extract", texts, "-o", f"{out}/", "--checkpoint", toy, *OPTIONS, **streams)

    return begin


@pytest.fixture
def finish(run):
    """Runs the command undisturbed; gives the seconds it took."""

    def finish(out):
        started = time.monotonic()
        with run(out) as process:
            process.join(300)
            assert process.exitcode == 0
        return time.monotonic() - started

    return finish


@pytest.fixture
def whole(finish, tmp_path):
    """The shards of a run that nothing disturbed."""
    finish(tmp_path / "whole")
    return shards_of(tmp_path / "whole")


def wait_for_a_shard(out, process):
    deadline = time.monotonic() + 300
    while not any((out / ".finished").glob("*.json")):
        assert time.monotonic() < deadline
        assert process.is_alive()
        time.sleep(0.01)


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_kills_at_random_moments(run, finish, whole, tmp_path):
    seconds = finish(tmp_path / "again")  # not the first, for which the fork server starts
    out, moments = tmp_path / "out", random.Random(50)
    in_the_middle = 0
    for _ in range(KILLS):
        wanted = len(list(out.glob("part-*"))) + moments.randint(0, 3)
        with run(out) as process:
            while process.is_alive() and len(list(out.glob("part-*"))) < wanted:
                time.sleep(0.001)
            process.join(moments.uniform(0, seconds / len(whole)))
            process.kill()
        there = shards_of(out)
        assert there.items() <= whole.items()  # each that is there is whole
        if len(there) == len(whole) and read_status(out).is_whole:
            shutil.rmtree(out)  # the next one begins again
        in_the_middle += 0 < len(there) < len(whole)
    assert in_the_middle
    finish(out)
    assert shards_of(out) == whole
    assert names_in(out) == names_in(tmp_path / "whole")


def test_sigterm_drops_the_shard_that_is_open(run, finish, whole, tmp_path):
    out, said = tmp_path / "out", tmp_path / "said"
    with run(out, stderr=said) as process:
        wait_for_a_shard(out, process)
        process.terminate()
        process.join(60)  # 0.2 s on a quiet machine, docs/corpora.md
        assert process.exitcode == 143
    line = "interrupted by SIGTERM; finished shards are kept; the same command resumes the run"
    assert said.read_text().splitlines()[-1] == f"bert-features: {line}"
    assert shards_of(out).items() <= whole.items()
    assert not list(out.glob(".part*"))
    finish(out)
    assert shards_of(out) == whole


def test_a_full_disk_costs_one_shard(run, finish, texts, tmp_path):
    lines = texts.read_text().splitlines()
    lines[1200:1300] = ["this is not jacksonville it is"] * 100  # the largest shard, of 20
    texts.write_text("".join(f"{line}\n" for line in lines))
    finish(tmp_path / "whole")
    whole = shards_of(tmp_path / "whole")
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
    finish(out)
    assert shards_of(out) == whole
