"""Whichever call of the file system fails, or kills a run: its output is whole or absent.

What failed says so in one line, the next run ends well with the same bytes, and nothing is left.
"""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CASES = ["parquet", "arrow", "jsonl", "npz", "hdf5", "tfrecord", "folder", "repair", "memory"]


@pytest.fixture(scope="module")
def found(toy, tmp_path_factory):
    """The number of calls and the problems of each case; see `nth_call`."""
    command = [sys.executable, "-m", "tests.corpus.nth_call", tmp_path_factory.mktemp("runs"), toy]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_any_call_may_fail(found, case):
    calls, problems = found[case]
    assert calls > 15
    assert problems == []


def test_no_case_is_left_out(found):
    assert sorted(found) == sorted(CASES)
