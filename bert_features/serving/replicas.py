"""Replicas: the processes of the service, which serve on the same port; this one watches them."""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import BertFeaturesError, DeviceError, first_line
from bert_features.extraction.forks import process_context
from bert_features.machine.hardware import limit_cores
from bert_features.machine.quiet_tensorflow import claim_process
from bert_features.machine.shares import Share
from bert_features.serving.worker import log_stop, serve_here

logger = logging.getLogger("bert_features.serve")

# An event loop that stands still for longer, or for longer than requests have at the end.
STILL_SECONDS = 60
_MORE_SECONDS = 5
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """What every process serves.

    Attributes:
      config: what `check_service` returned.
      settings: the settings of the service.
      set_up_logging: prepares the log of a process.
    """

    config: ExtractConfig
    settings: ServeSettings
    set_up_logging: Callable[[], None]


def serve_in_processes(job: Job, shares: Sequence[Share], listening: Callable[[], None]) -> None:
    """Serves in a process for each share, and replaces those that end, until a signal.

    `listening` is called once, when all of them listen. DeviceError: one failed before.
    """
    with TemporaryDirectory(prefix="bert_features_serve_") as metrics, _signals() as received:
        replicas = _Replicas(job, metrics, received)
        try:
            replicas.run(shares, listening)
        finally:
            replicas.stop()
    if not replicas.listen:
        signal.raise_signal(received[0])


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Notes the signals that end the service, instead of what they did before."""
    received: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    before = {n: signal.signal(n, lambda number, frame: received.append(number)) for n in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Replicas:
    """The processes with their shares, by their pipes, which end with them.

    A process sends "" while it listens, or else why it failed.
    """

    def __init__(self, job: Job, metrics: str, received: list[int]) -> None:
        self._job, self._metrics, self._received = job, metrics, received
        self._context = process_context(job.config)
        self._running: dict[Connection, tuple[BaseProcess, Share]] = {}
        self._heard: set[Connection] = set()
        self.listen = False  # whether all have

    def run(self, shares: Sequence[Share], listening: Callable[[], None]) -> None:
        """Runs them until a signal; raises DeviceError if one fails before all listen."""
        missing = [*shares]
        while not self._received:
            for share in missing:
                self._start(share)
            missing = self._take_news()
            if not self.listen and len(self._heard) == len(shares):
                self.listen = True
                listening()
            if missing:
                time.sleep(_LOOK_SECONDS)  # Ctrl-C of a terminal reaches this one, too

    def stop(self) -> None:
        """Ends them; if they listen, with the time that requests have or until a second signal."""
        if self.listen:
            log_stop()
            for process, _ in self._running.values():
                process.terminate()
            end = time.monotonic() + self._job.settings.drain_seconds + _MORE_SECONDS
            while self._running and time.monotonic() < end and len(self._received) < 2:
                self._take_news()
        for process, _ in self._running.values():
            process.kill()
            process.join()

    def _start(self, share: Share) -> None:
        pipe, its = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._job, share, self._metrics, its))
        process.start()
        its.close()
        self._running[pipe] = process, share

    def _take_news(self) -> list[Share]:
        """Waits for a moment for messages; the shares of processes that have ended."""
        ended = []
        for pipe in wait([*self._running], _LOOK_SECONDS):
            assert isinstance(pipe, Connection)
            try:
                reason = pipe.recv()
            except (EOFError, OSError):
                ended.append(self._remove(pipe))
                continue
            if not reason:
                self._heard.add(pipe)
            elif self.listen:
                logger.warning("a process of the service failed: %s", reason)
            else:
                raise DeviceError(f"the service does not start: {reason}")
        return ended

    def _remove(self, pipe: Connection) -> Share:
        from prometheus_client.multiprocess import mark_process_dead

        process, share = self._running.pop(pipe)
        self._heard.discard(pipe)
        pipe.close()
        process.join(_MORE_SECONDS)
        process.kill()  # should it hang at its exit
        process.join()
        mark_process_dead(process.pid, self._metrics)
        if not self._received:
            logger.warning("a process of the service has ended; another one replaces it")
        return share


def _work(job: Job, share: Share, metrics: str, pipe: Connection) -> None:
    """What each of the processes does."""
    claim_process()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the first process decides
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # also while the model is loaded
    job.set_up_logging()
    os.environ |= {"PROMETHEUS_MULTIPROC_DIR": metrics, **share.environment}  # before any import
    if share.cores is not None:
        limit_cores(len(share.cores))
    still_seconds = max(STILL_SECONDS, job.settings.drain_seconds + _MORE_SECONDS)

    def tick() -> None:
        # A process whose event loop stands still writes its stack to stderr and ends.
        faulthandler.dump_traceback_later(still_seconds, exit=True, file=2)
        try:
            pipe.send("")
        except OSError:  # the first process has ended
            signal.raise_signal(signal.SIGTERM)

    try:
        serve_here(job.config, job.settings, listening=tick, stopping=lambda: None, tick=tick)
    except Exception as error:
        line = first_line(error, empty="no message")
        if not isinstance(error, BertFeaturesError):
            line = f"{type(error).__name__}: {line}"
        with contextlib.suppress(OSError):
            pipe.send(line)
        sys.exit(1)
