"""Worker: a process of the service, which loads the model and answers requests."""

import faulthandler
import logging
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import BertFeaturesError, DeviceError, first_line
from bert_features.machine.hardware import cores, limit_cores
from bert_features.machine.quiet_tensorflow import claim_process, import_tensorflow
from bert_features.machine.shares import Share

if TYPE_CHECKING:
    from bert_features.serving.guard import Guard

logger = logging.getLogger("bert_features.serve")

# The suffix of the file of a process that listens, and the file with the error of a failed start.
LISTENS, FAILURE = ".listens", "failure"
# An event loop that stands still for longer, or for longer than requests have at the end.
STILL_SECONDS = 60
_MORE_SECONDS = 5
# The exit status for which uvicorn ends every worker, and one for which it starts another.
_END_ALL, _TRY_AGAIN = 3, 1
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
# Up to this number of cores each kernel has one thread: 1.2 times as many texts, and a long text
# alone takes 1.3 times as long (benchmarks/diary.md). With more cores it would take longer yet.
_FEW_CORES = 2


def load_app(config: ExtractConfig, settings: ServeSettings) -> "Guard":
    """Loads the model, and makes the ASGI application that serves it; raises BertFeaturesError."""
    # Each combination of outputs would log the device that it runs on.
    logging.getLogger("bert_features").setLevel(logging.WARNING)
    logger.setLevel(logging.INFO)
    import_tensorflow(config.runtime, config.device, many_batches=cores() <= _FEW_CORES)
    from bert_features.extraction.pipeline import Pipeline
    from bert_features.serving.app import make_app
    from bert_features.serving.service import Service

    return make_app(Service(Pipeline(config), settings))


def stop_if_dead(app: "Guard") -> None:
    """Stops this process if it computes no more, or if the process that started it has ended."""
    parent = multiprocessing.parent_process()
    if not app.is_alive or (parent is not None and not parent.is_alive()):
        signal.raise_signal(signal.SIGTERM)


@dataclass
class Worker:
    """The application of one of several processes; uvicorn calls it in each of them.

    Attributes:
      config: see `catalog.config_to_serve`.
      folder: where processes leave their metrics, their numbers and why they failed.
    """

    config: ExtractConfig
    settings: ServeSettings
    shares: list[Share]
    folder: Path
    set_up_logging: Callable[[], None]

    def __call__(self) -> "Guard":
        """Loads the model; without success the process ends, and the first ones leave the error."""
        claim_process()
        self._parent = os.getppid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the first process decides
        # uvicorn's handlers would wait until the model is loaded.
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in _ENDINGS}
        self.set_up_logging()
        silence_uvicorn()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self.folder)  # before it is imported
        replaces = False
        try:
            replaces = self._take_share()
            self._app = load_app(self.config, self.settings)
        except Exception as error:
            failure = _portable(error)
            if replaces:
                logger.warning("a process of the service does not start: %s", failure)
                sys.exit(_TRY_AGAIN)
            (self.folder / FAILURE).write_bytes(pickle.dumps(failure))
            sys.exit(_END_ALL)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return self._app

    async def tick(self) -> None:
        """Notes that this process listens; uvicorn calls it once a second.

        A process whose event loop stands still writes its stack to stderr and ends: uvicorn's ping
        is answered by another thread.
        """
        still = max(STILL_SECONDS, self.settings.drain_seconds + _MORE_SECONDS)
        faulthandler.dump_traceback_later(still, exit=True, file=2)
        (self.folder / f"{self._number}{LISTENS}").touch()
        stop_if_dead(self._app)
        first = multiprocessing.parent_process()
        if os.getppid() != self._parent and first is not None and first.is_alive():
            os._exit(_TRY_AGAIN)  # its fork server was killed: uvicorn takes it for dead

    def _take_share(self) -> bool:
        """Takes a share that no other process has; the kernel frees it when this process ends.

        Returns whether a process that has ended had it.
        """
        for number, share in enumerate(self.shares):
            self._lock = FileLock(self.folder / f"{number}.lock")
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                continue
            if (self.folder / FAILURE).exists():  # the process that had the share cannot load
                sys.exit(_END_ALL)
            self._number = number
            os.environ.update(share.environment)
            if share.cores is not None:
                limit_cores(max(cores() // len(self.shares), 1))
            return self._follow()
        logger.warning("a process of the service waits for the end of the one that it replaces")
        sys.exit(_TRY_AGAIN)

    def _follow(self) -> bool:
        """Notes who has the share; clears up after the process that had it, if there was one."""
        from prometheus_client.multiprocess import mark_process_dead

        before = list(self.folder.glob(f"{self._number}.had-by-*"))
        for file in before:
            logger.warning("a process of the service has ended; another one replaces it")
            mark_process_dead(file.name.rpartition("-")[2], self.folder)
            file.unlink()
        (self.folder / f"{self._number}.had-by-{os.getpid()}").touch()
        return bool(before)


def silence_uvicorn() -> None:
    """Keeps the lines of uvicorn off the terminal; this package logs starts, failures and ends."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def log_stop() -> None:
    """Logs that the service stops."""
    logger.info("stopping; a second Ctrl-C does not wait for running requests")


def _portable(error: Exception) -> BertFeaturesError:
    """The error, or one that another process can read."""
    if isinstance(error, BertFeaturesError):
        return error
    line = first_line(error, empty="no message")
    return DeviceError(f"the service does not start: {type(error).__name__}: {line}")
