"""Workers: the processes of the service, which uvicorn starts, watches and replaces."""

import logging
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

from bert_features.errors import BertFeaturesError, DeviceError, describe_exit
from bert_features.serving.port import SharedPort
from bert_features.serving.worker import FAILED, LISTENS, log_stop

logger = logging.getLogger("bert_features")

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Workers(Multiprocess):
    """uvicorn's workers. One that cannot load the model ends them all; later ones are replaced.

    Args:
      config: settings of uvicorn; its application is a `Worker`.
      port: where they listen.
      folder: see `Worker`.
      listening: called once, when all of them listen.
    """

    def __init__(
        self, config: uvicorn.Config, port: SharedPort, folder: Path, listening: Callable[[], None]
    ) -> None:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._handlers = {number: before[number] for number in _ENDINGS}
        super().__init__(config, sockets=[port])  # type: ignore[list-item]
        for number in before.keys() - _ENDINGS:  # by which uvicorn adds and removes workers
            signal.signal(number, before[number])
        if self._handlers[signal.SIGHUP] == signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._folder = folder
        self._listening = listening
        self._have_listened = False
        self._received: signal.Signals | None = None
        self._failure: BertFeaturesError | None = None

    def run(self) -> None:
        """Runs until a signal ends it.

        Raises:
          BertFeaturesError: a process ended before all of them listened.
        """
        super().run()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._failure is not None:
            raise self._failure
        if not self._have_listened and self._received is not None:
            signal.raise_signal(self._received)

    def keep_subprocess_alive(self) -> None:
        """Looks after the processes; uvicorn calls it twice a second."""
        if not self._have_listened:
            self._watch_start()
            return
        for process in self.processes:
            process.child_conn.close()  # the end of the process then ends a wait for its answer
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            reason = self._read_failure(pid) or "it was ended from outside, or has crashed"
            logger.warning(
                "a process of the service has ended (%s); another one replaces it", reason
            )
            mark_process_dead(pid, self._folder)

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
            if not self._listens(process):
                process.process.kill()  # it would load the model first
        self.should_exit.set()

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
