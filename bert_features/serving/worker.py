"""Worker: a process of the service, which loads the model and answers requests."""

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

# The files of a process that listens, and of one that could not load the model.
LISTENS, FAILED = ".listens", ".failed"
# Not 3, for which uvicorn ends every worker.
_START_FAILED = 1
# Up to so many cores each kernel has one thread: 1.2 times as many texts, and a long text alone
# takes 1.3 times as long (benchmarks/diary.md). With more cores it would take longer yet.
_FEW_CORES = 2


def load_app(config: ExtractConfig, settings: ServeSettings) -> "Guard":
    """Loads the model, and makes the ASGI application that serves it; raises BertFeaturesError."""
    # Each combination of outputs would log the device that it runs on.
    logging.getLogger("bert_features").setLevel(logging.WARNING)
    logger.setLevel(logging.INFO)
    import_tensorflow(config.runtime, config.device, many_batches=cores() <= _FEW_CORES)
    from bert_features.extraction.extractor import FeatureExtractor
    from bert_features.serving.app import make_app
    from bert_features.serving.service import Service

    return make_app(Service(FeatureExtractor(config), settings))


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
      folder: where processes leave their metrics, whether they listen, and why they failed.
    """

    config: ExtractConfig
    settings: ServeSettings
    shares: list[Share]
    folder: Path
    set_up_logging: Callable[[], None]

    def __call__(self) -> "Guard":
        """Loads the model; without success the process ends, and leaves the error in the folder."""
        claim_process()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the first process decides
        self.set_up_logging()
        silence_uvicorn()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self.folder)  # before it is imported
        try:
            self._take_share()
            self._app = load_app(self.config, self.settings)
        except Exception as error:
            self._file(FAILED).write_bytes(pickle.dumps(_portable(error)))
            sys.exit(_START_FAILED)
        return self._app

    async def tick(self) -> None:
        """Notes that this process listens; uvicorn calls it once a second."""
        self._file(LISTENS).touch()
        stop_if_dead(self._app)

    def _take_share(self) -> None:
        """Takes a share that no other process has; the kernel frees it when this process ends."""
        for number, share in enumerate(self.shares):
            self._lock = FileLock(self.folder / f"{number}.lock")
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                continue
            os.environ.update(share.environment)
            if share.cores is not None:
                limit_cores(max(cores() // len(self.shares), 1))
            return
        raise DeviceError("every process of the service is there already")

    def _file(self, suffix: str) -> Path:
        return self.folder / f"{os.getpid()}{suffix}"


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
