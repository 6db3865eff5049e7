"""Runs into a folder, as tests watch and end them.

Most runs of these tests compute the `EXAMPLES` of the fixture `texts`. Those in processes of their
own compute the `MANY` of the fixture `many`, with the model of `tests.corpus.quick`.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from bert_features.formats.manifest import Manifest

EXAMPLES, DIFFERENT = 20, 7
MANY, SHARDS = 1200, 12
SETTINGS = {"do_lower_case": True, "max_seq_length": 8, "batch_size": 4, "layers": (-1,)}


def shards_of(folder):
    """The bytes of the files of the shards, by name."""
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


class StopRun(Exception):  # noqa: N818 - it is no error
    pass


def stop_after(examples):
    def progress(counts, total):
        if counts.examples >= examples:
            raise StopRun

    return progress


def extract_until(examples, config, inputs, out):
    """A run that is stopped once it has computed so many examples."""
    with pytest.raises(StopRun):
        extract(config, inputs, out, progress=stop_after(examples))


def computing_each():
    """In the block `dedupe` computes each text, in the batches that it has otherwise."""
    place = "bert_features.corpus.shards.open_store"
    return mock.patch(place, return_value=contextlib.nullcontext())


def config_of(toy, **settings):
    return ExtractConfig.of(
        {"checkpoint": toy, "shard_examples": MANY // SHARDS, **SETTINGS, **settings}
    )


def begin(toy, texts, out, *options):
    """The same run in a process of its own."""
    program = "from tests.corpus.quick import main; main()"
    line = [sys.executable, "-c", program, "extract", texts, "-o", f"{out}/", *options]
    line += ["--uncased", "--max-seq-length=8", "--batch-size=4", "--layers=-1"]
    line += [f"--shard-examples={MANY // SHARDS}", "--checkpoint", toy]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(line, **pipes, text=True, start_new_session=True)


@contextlib.contextmanager
def stalled(toy, texts, out, *options):
    """The same; in the block it has finished two shards, and finishes no other."""
    mark = Path(f"{out}.stalled")
    mark.touch()
    with begin(toy, texts, out, *options) as process:
        try:
            wait_until(lambda: process.poll() is not None or shards_in(out) >= 2)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()
    mark.unlink()


def shards_in(out):
    """The number of shards that a run has finished, before its end."""
    return len(list(out.glob(".finished/*.json")))


def count_finished(out):
    return len(list(Manifest.read(out).finished_shards()))


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def children_of(process):
    children = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            children += (task / "children").read_text().split()
    return [int(child) for child in children]


def workers_of(parent=None):
    """The processes that compute for a process, by default for this one."""
    workers = []
    for child in children_of(parent or os.getpid()):
        # Not the resource tracker, another child, whose start nobody waits for.
        if "spawn_main" in title_of(child):
            workers.append(child)
        elif "forkserver" in title_of(child):
            with contextlib.suppress(FileNotFoundError):  # it has ended
                workers += children_of(child)
    return workers


def title_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
