"""A worker: a process that holds the model of a run, computes shards and reports."""

import logging
import os
import socket
import time
import traceback
from collections.abc import Callable

from bert_features.config.recipe import Recipe
from bert_features.corpus.executor import Finished, Log, Message, Progress
from bert_features.corpus.shards import ShardJob, ShardWriter
from bert_features.errors import BertFeaturesError, DeviceError, first_line
from bert_features.extraction.counts import Counts
from bert_features.machine.quiet_tensorflow import claim_process

_PROGRESS_SECONDS = 0.2
_MAX_CHARACTERS = 300
_DEVICE_LIBRARIES = ("tensorflow", "jax", "jaxlib")


def load_writer(job: ShardJob) -> ShardWriter:
    """Loads the model of a run in a process that does nothing else."""
    claim_process()
    return ShardWriter.load(job)


def write_shard(
    writer: ShardWriter,
    shard: int,
    recipe: Recipe,
    report: Callable[[Message], None],
    check: Callable[[], None] = lambda: None,
) -> Finished:
    """Computes a shard, puts its file in its place and reports.

    For `recipe` see `Ready`. At each step `check` is called; it ends the work by an exception.
    """
    writer.share(recipe)
    name, next_report = (socket.gethostname(), os.getpid()), 0.0

    def note(counts: Counts) -> None:
        nonlocal next_report
        check()
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + _PROGRESS_SECONDS
            report(Progress(name, shard, counts, writer.stages.times()))

    entry = writer.write(shard, note)
    return Finished(name, shard, entry, writer.stages.times())


def report_logs(report: Callable[[Message], None]) -> None:
    """Reports what this process logs instead of showing it."""
    logger = logging.getLogger("bert_features")
    logger.addHandler(_Reporter(report))
    logger.propagate = False
    logger.setLevel(logging.INFO)


class _Reporter(logging.Handler):
    def __init__(self, report: Callable[[Message], None]) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(Log(record.levelno, record.getMessage()))


def portable(error: Exception) -> Exception:
    """The error, or one that says the same to a process without the library it came from."""
    plain = _without_its_library(error)
    plain.add_note(f"In a process of the run on {socket.gethostname()}:\n{traceback.format_exc()}")
    return plain


def _without_its_library(error: Exception) -> Exception:
    if isinstance(error, BertFeaturesError) or type(error).__module__ == "builtins":
        return error
    line = first_line(error, _MAX_CHARACTERS, empty="no message")
    text = f"{type(error).__name__}: {line}"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Exhausted" in text:
        return MemoryError(line)
    if type(error).__module__.partition(".")[0] in _DEVICE_LIBRARIES:
        return DeviceError(f"the device of a process failed: {text}")
    return RuntimeError(text)  # a bug
