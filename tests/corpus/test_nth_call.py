"""Whichever call of the file system fails, or kills a run: its output is whole or absent.

What failed says so in one line, the next run ends well with the same bytes, and nothing is left.
"""

import json
import os
import subprocess
import sys
import tempfile

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.release]

CASES = ["parquet", "arrow", "jsonl", "npz", "hdf5", "tfrecord", "folder", "repair", "memory"]


@pytest.fixture(scope="module")
def found(toy):
    """The number of calls and the problems of each case; see `nth_call`.

    Thousands of files are written and removed: in memory, where there is such a folder, as a disk
    that is busy takes three times as long.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        command = [sys.executable, "-m", "tests.corpus.nth_call", folder, toy]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_any_call_may_fail(found, case):
    calls, problems = found[case]
    assert calls > 15
    assert problems == []


def test_no_case_is_left_out(found):
    assert sorted(found) == sorted(CASES)
