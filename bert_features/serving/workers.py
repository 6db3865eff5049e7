"""Workers: the processes of the service, which uvicorn starts, watches and replaces."""

import logging
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import BertFeaturesError, DeviceError, describe_exit
from bert_features.serving.port import SharedPort
from bert_features.serving.worker import FAILED, LISTENS, log_stop

logger = logging.getLogger("bert_features")

# uvicorn looks after its processes this often; they give a sign once a second.
_LOOKS_PER_SECOND = 2
_WORRYING_LOOKS = 4
# No event loop is given up sooner.
_MIN_SECONDS = 5
# What a process takes to end, besides its requests.
_MORE_SECONDS = 3
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Workers(Multiprocess):
    """uvicorn's workers, whose application is a `Worker`.

    One that cannot load the model ends them all; later ones are replaced. `listening` is called
    once, when all of them listen.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        settings: ServeSettings,
        folder: Path,
        listening: Callable[[], None],
    ) -> None:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._handlers = {number: before[number] for number in _ENDINGS}
        super().__init__(config, sockets=[SharedPort(settings)])  # type: ignore[list-item]
        for number in before.keys() - _ENDINGS:  # by which uvicorn adds and removes workers
            signal.signal(number, before[number])
        if self._handlers[signal.SIGHUP] == signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._folder = folder
        self._drain_seconds = settings.drain_seconds
        self._max_looks = _LOOKS_PER_SECOND * max(settings.limits.seconds, _MIN_SECONDS)
        # By process: the time of its last sign of life, and how often we looked since.
        self._signs: dict[int | None, tuple[int, int]] = {}
        self._listening = listening
        self._have_listened = False
        self._received: signal.Signals | None = None
        self._failure: BertFeaturesError | None = None

    def run(self) -> None:
        """Runs until a signal; raises BertFeaturesError if not all processes come to listen."""
        super().run()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._failure is not None:
            raise self._failure
        if not self._have_listened and self._received is not None:
            signal.raise_signal(self._received)

    def keep_subprocess_alive(self) -> None:
        """Looks after the processes; uvicorn calls it twice a second."""
        if self.should_exit.is_set():  # Ctrl-C in a terminal reaches all processes
            return
        if not self._have_listened:
            self._watch_start()
            return
        for number, process in enumerate(self.processes):
            stands_still = self._looks_in_vain(process) > self._max_looks
            if process.exitcode is None and not stands_still:
                continue
            reason = self._read_failure(process.pid) or (
                "it did not respond" if stands_still else "it was ended from outside or crashed"
            )
            logger.warning(
                "a process of the service has ended (%s); another one replaces it", reason
            )
            process.kill()
            process.join()
            mark_process_dead(process.pid, self._folder)
            self.processes[number] = Process(self.config, self.sockets)
            self.processes[number].start()

    def _looks_in_vain(self, process: Process) -> int:
        """Looks since the event loop of a process last gave a sign of life; 0 until it listens.

        uvicorn's ping is answered by another thread, and nothing else is done until the answer
        comes. Looks are counted, not seconds: after a sleep of the machine, no sign is missing.
        """
        file = self._folder / f"{process.pid}{LISTENS}"
        sign = file.stat().st_mtime_ns if file.exists() else 0
        last, looks = self._signs.get(process.pid, (0, 0))
        self._signs[process.pid] = sign, looks + 1 if sign == last != 0 else 0
        return self._signs[process.pid][1]

    def _watch_start(self) -> None:
        for process in self.processes:
            if process.exitcode is not None:
                self._failure = self._failure_of(process.pid, process.exitcode)
                self._stop()
                return
        if all(map(self._listens, self.processes)):
            self._have_listened = True
            self._listening()

    def _failure_of(self, pid: int | None, status: int) -> BertFeaturesError:
        if (error := self._read_failure(pid)) is not None:
            return error
        by = describe_exit(status)
        return DeviceError(f"a process of the service ended by {by} before it had the model")

    def _read_failure(self, pid: int | None) -> BertFeaturesError | None:
        """Why a process could not load the model; None if it did."""
        file = self._folder / f"{pid}{FAILED}"
        failure: BertFeaturesError | None = (
            pickle.loads(file.read_bytes()) if file.exists() else None
        )
        return failure

    def _listens(self, process: Process) -> bool:
        return (self._folder / f"{process.pid}{LISTENS}").exists()

    def _stop(self) -> None:
        for process in self.processes:
            if not self._listens(process) or self._looks_in_vain(process) > _WORRYING_LOOKS:
                process.process.kill()  # it would load the model first, or does not hear
        self.should_exit.set()

    def join_all(self) -> None:
        """Waits for the processes; one that has not ended when it should is killed."""
        end = time.monotonic() + self._drain_seconds + _MORE_SECONDS
        for process in self.processes:
            process.process.join(max(end - time.monotonic(), 0))
            process.process.kill()
            process.join()

    def _end(self, received: signal.Signals) -> None:
        self._received = received
        if self._have_listened:
            log_stop()
        self._stop()

    def handle_int(self) -> None:
        """Ends the service after SIGINT."""
        self._end(signal.SIGINT)

    def handle_term(self) -> None:
        """Ends the service after SIGTERM."""
        self._end(signal.SIGTERM)

    def handle_hup(self) -> None:
        """Ends the service with its terminal."""
        self._end(signal.SIGHUP)
