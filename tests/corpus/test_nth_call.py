"""Whichever call of the file system fails, or kills a run: its output is whole or absent.

What failed says so in one line, the next run ends well with the same bytes, and nothing is left.
"""

import json
import os
import subprocess
import sys
import tempfile

import pytest

CASES = ["parquet", "arrow", "jsonl", "npz", "hdf5", "tfrecord", "folder", "repair", "memory"]


def run_cases(toy, step, *names):
    """The number of calls and the problems of cases, by default all; see `nth_call`.

    Thousands of files are written and removed: in memory, where there is such a folder, as a disk
    that is busy takes three times as long.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        command = [sys.executable, "-m", "tests.corpus.nth_call", folder, toy, str(step), *names]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_some_calls_fail_or_kill(toy):
    for calls, problems in run_cases(toy, 9, "parquet", "folder").values():
        assert calls > 15
        assert problems == []


@pytest.fixture(scope="module")
def found(toy):
    return run_cases(toy, 1)


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("case", CASES)
def test_any_call_may_fail(found, case):
    calls, problems = found[case]
    assert calls > 15
    assert problems == []


@pytest.mark.slow
@pytest.mark.release
def test_no_case_is_left_out(found):
    assert sorted(found) == sorted(CASES)
