"""One of several processes of a run: computes the shards that it is told to.

    python -m bert_features.corpus.worker DESCRIPTOR

The descriptor is one end of a pipe. A `Job` comes first, then the number of a shard at a time; the
answers are the other messages of `corpus.messages`.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from bert_features.corpus.messages import Failed, Finished, Job, Log, Progress, Ready
from bert_features.files import is_writing

if TYPE_CHECKING:
    from bert_features.extraction.counts import Counts

_PROGRESS_SECONDS = 0.2


class _SendLog(logging.Handler):
    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(Log(record.levelno, record.getMessage()))


def main(descriptor: int) -> int:
    """Serves one run; the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    pipe = Connection(descriptor)
    logger = logging.getLogger("bert_features")
    logger.addHandler(_SendLog(pipe))
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        _serve(pipe)
    except (KeyboardInterrupt, EOFError, BrokenPipeError, ConnectionResetError):
        return 1  # nobody is there to be told
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(Failed.of(error))
        return 1
    return 0


def _serve(pipe: Connection) -> None:
    job: Job = pipe.recv()
    if job.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)  # before TensorFlow counts them
    from bert_features.corpus.shards import ShardWriter

    writer = ShardWriter.load(job.config, job.manifest)
    pipe.send(Ready(writer.device))
    while (shard := pipe.recv()) is not None:
        entry = writer.write(shard, _Reports(pipe))
        pipe.send(Finished(shard, entry))


class _Reports:
    """Sends the totals of a shard now and then; ends the process if nobody listens any more."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._next = 0.0

    def __call__(self, counts: "Counts") -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            self._pipe.send(Progress(asdict(counts)))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    if is_writing():
        raise KeyboardInterrupt  # what is half-written is removed
    os._exit(128 + number)


if __name__ == "__main__":
    # Not `sys.exit`: a thread of TensorFlow may still run, and Python would wait for it.
    os._exit(main(int(sys.argv[1])))
