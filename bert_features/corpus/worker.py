"""One of several processes of a run: computes the shards that it is told to.

    python -m bert_features.corpus.worker DESCRIPTOR

The descriptor is one end of a pipe. A `Job` comes first, then the number of a shard at a time; the
answers are the other messages of `corpus.messages`.
"""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from bert_features.corpus.messages import Failed, Finished, Job, Log, Message, Progress, Ready
from bert_features.files import is_writing
from bert_features.monitor.stages import StageClock

if TYPE_CHECKING:
    from bert_features.extraction.counts import Counts

_PROGRESS_SECONDS = 0.2
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # of Linux' sys/prctl.h


class _Pipe:
    """The pipe to the run; any thread may send."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._lock = threading.Lock()

    def recv(self) -> Any:
        """The next message of the run."""
        return self._connection.recv()

    def send(self, message: Message) -> None:
        """Sends a message to the run."""
        with self._lock:
            self._connection.send(message)


class _SendLog(logging.Handler):
    def __init__(self, pipe: _Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(Log(record.levelno, record.getMessage()))


def main(descriptor: int) -> int:
    """Serves one run; the exit status."""
    for number in _ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    _end_with_parent()
    pipe = _Pipe(descriptor)
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


def _serve(pipe: _Pipe) -> None:
    job: Job = pipe.recv()
    if job.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)  # before TensorFlow counts them
    from bert_features.corpus.shards import ShardWriter

    writer = ShardWriter.load(job.config, job.manifest, place=job.place)
    pipe.send(Ready(writer.device, writer.processor))
    while True:  # until the run ends this process
        shard = pipe.recv()
        entry = writer.write(shard, _Reports(pipe, writer.stages))
        pipe.send(Finished(shard, entry, writer.stages.times()))


class _Reports:
    """Sends the totals of a shard now and then; ends the process if nobody listens any more."""

    def __init__(self, pipe: _Pipe, stages: StageClock) -> None:
        self._pipe = pipe
        self._stages = stages
        self._next = 0.0

    def __call__(self, counts: "Counts") -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            self._pipe.send(Progress(asdict(counts), self._stages.times()))


def _end_with_parent() -> None:
    """Makes the system end this process with the one that started it, where it can.

    A run that is killed frees its lock and its devices. Without this, its processes would notice it
    only at their next message.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it had ended before that
        os._exit(1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # Ctrl-C reaches this process twice: from the terminal and from the run. Not SIG_IGN: Python
    # complains of a signal that has come already and has no handler any more.
    for other in _ENDINGS:
        signal.signal(other, lambda number, frame: None)
    if is_writing():
        raise KeyboardInterrupt  # what is half-written is removed
    os._exit(128 + number)


if __name__ == "__main__":
    # Not `sys.exit`: a thread of TensorFlow may still run, and Python would wait for it.
    os._exit(main(int(sys.argv[1])))
