"""status: a few lines, and status 0 if the folder is finished and whole."""

from pathlib import Path

from bert_features.cli import status as command
from bert_features.corpus.folder import Holder
from bert_features.corpus.status import Status

# Of 3 shards of 1,000 examples, 2 are finished; each took half a minute.
BEGUN = {"shards": 3, "finished_shards": 2, "examples": 3000, "finished_examples": 2000}
BEGUN |= {"finished_tokens": 14_000, "seconds": 60.0}
LINES = {
    "shards": "2 of 3 finished",
    "examples": "2,000 of 3,000",
    "tokens": "14,000 in the finished shards",
    "speed": "233 tokens/s for each process; computed in 1 min of process time so far",
}


def describe(state, **values):
    return command._describe(Status(Path("out"), state, **values))


def test_a_run_that_stopped():
    assert describe("stopped", **BEGUN, changed_inputs=("in.txt",)) == LINES | {
        "state": "stopped; run the same command to resume it",
        "inputs": "in.txt: not found, or of another size or time than the run read (names are "
        "relative to the folder in which the run began)",
    }


def test_a_run_that_goes_on():
    assert describe("running", **BEGUN, holders=(Holder(7, "host", 2),)) == LINES | {
        "state": "running: process 7 on host, which computes with 2 processes",
        "left": "about 15 s at this speed",
    }
    assert describe("running", holders=(Holder(7, "host"),)) == {
        "state": "running: process 7 on host; it still reads its inputs"
    }
