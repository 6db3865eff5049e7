"""One actor of a run on Ray: computes the shards that the run gives it.

Its methods return the messages of `corpus.messages` and raise nothing: an error that Ray carries
loses its class. `write` runs in one thread; `take_news` and `stop` are called meanwhile in others.
"""

import contextlib
import logging
import os
import socket
import threading
from collections import deque
from dataclasses import asdict, dataclass

from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.holding import is_seen
from bert_features.corpus.messages import Failed, Finished, Log, Progress, Ready
from bert_features.corpus.plan import describe_run, find_versions
from bert_features.corpus.resuming import find_differences
from bert_features.corpus.shards import ShardWriter
from bert_features.errors import DeviceError, OutputError
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import StorePlace
from bert_features.extraction.store_place import check_cache
from bert_features.files import Location
from bert_features.formats.manifest import Manifest
from bert_features.machine.hardware import limit_cores
from bert_features.machine.selection import choose_runtime

_MAX_LOGS = 1000


@dataclass(frozen=True)
class RayJob:
    """What an actor needs to know before its first shard.

    Attributes:
      config: the settings.
      manifest: the run, with the absolute path of its folder.
      current_folder: the folder that relative paths are seen from.
      cores: the CPU cores that Ray reckons an actor to use; None for all.
      place: the cache of texts that repeat, at the same path on every node; None for none.
    """

    config: ExtractConfig
    manifest: Manifest
    current_folder: str
    cores: int | None
    place: StorePlace | None = None


class ShardActor:
    """Holds a model in a process of Ray's."""

    def __init__(self) -> None:
        self._writer: ShardWriter | None = None
        self._counts: Counts | None = None
        self._logs: deque[Log] = deque(maxlen=_MAX_LOGS)
        self._ended = threading.Event()

    def load(self, job: RayJob) -> Ready | Failed:
        """Loads the model.

        Returns:
          `Ready`; `Failed` if this node has other versions or another checkpoint than the machine
          of the run, if it does not see the run's folder, or if the model cannot be loaded.
        """
        try:
            self._begin(job)
            writer = ShardWriter.load(job.config, job.manifest, place=job.place)
            _check_same(job.manifest.run, describe_run(job.config, writer.checkpoint))
        except Exception as error:
            return Failed.of(error)
        self._writer = writer
        return Ready(writer.device, writer.processor)

    def write(self, shard: int) -> Finished | Failed | None:
        """Computes a shard and puts its file in its place; None if `stop` ended it."""
        assert self._writer is not None  # the run waits for `Ready`
        try:
            entry = self._writer.write(shard, self._note)
            return Finished(shard, entry, self._writer.stages.times())
        except _Stopped:
            return None
        except Exception as error:
            return Failed.of(error)
        finally:
            self._counts = None

    def take_news(self) -> list[Progress | Log]:
        """What was logged since the last call, and the totals of the shard now."""
        news: list[Progress | Log] = []
        while self._logs:
            news.append(self._logs.popleft())
        if (counts := self._counts) is not None and self._writer is not None:
            news.append(Progress(asdict(counts), self._writer.stages.times()))
        return news

    def stop(self) -> None:
        """Makes `write` end at its next step, and remove what is half-written."""
        self._ended.set()

    def _begin(self, job: RayJob) -> None:
        with contextlib.suppress(OSError):  # absolute paths do not need it
            os.chdir(job.current_folder)
        if job.cores is not None:
            limit_cores(job.cores)
        logger = logging.getLogger("bert_features")
        logger.addHandler(_Keep(self._logs))
        logger.setLevel(logging.INFO)
        config = job.config
        versions = find_versions(choose_runtime(config.runtime, config.device))
        _check_same(job.manifest.run, {"versions": versions})
        _check_is_shared(job.manifest.folder)
        check_cache(config)

    def _note(self, counts: Counts) -> None:
        if self._ended.is_set():
            raise _Stopped
        self._counts = counts


class _Stopped(Exception):  # noqa: N818 - not an error
    """The run ends."""


class _Keep(logging.Handler):
    """Keeps messages until the run asks for them."""

    def __init__(self, logs: deque[Log]) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        self._logs.append(Log(record.levelno, record.getMessage()))


def _check_same(run: dict[str, object], here: dict[str, object]) -> None:
    """Refuses a node on which the files would get other bytes."""
    there = {name: value for name, value in run.items() if name in here}
    if differences := find_differences(there, here):
        raise DeviceError(
            f"the Ray node {socket.gethostname()} differs from the machine of the run: "
            f"{'; '.join(differences)}; install the same versions and checkpoints everywhere, and "
            "if only the nodes have a TPU or GPU, set device and runtime"
        )


def _check_is_shared(folder: Location) -> None:
    """Refuses a node that does not see the folder in which the run writes."""
    if not is_seen(folder):
        raise OutputError(
            f"the Ray node {socket.gethostname()} does not see {folder}, which this run writes; "
            "put the output on a file system that all nodes have at the same path"
        )
