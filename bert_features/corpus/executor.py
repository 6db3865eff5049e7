"""The interface of what computes the shards of a run beside its own process."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from bert_features.config.recipe import Recipe, find_differences
from bert_features.errors import DeviceError
from bert_features.extraction.counts import Counts
from bert_features.formats.manifest import FinishedEntry
from bert_features.monitor.run import RunMonitor
from bert_features.monitor.stages import StageTimes

logger = logging.getLogger("bert_features")


@dataclass(frozen=True)
class Ready:
    """A worker has loaded the model; the manifest records these values.

    Attributes:
      processor: the processor that computes, on which the last digits of features depend.
      recipe: how it makes vectors. All workers take the canaries and scales of the first.
    """

    recipe: Recipe
    processor: str = ""


@dataclass(frozen=True)
class Progress:
    """How far a worker has come.

    Attributes:
      counts: totals of that shard.
      stages: the times of all its shards.
    """

    worker: Hashable
    shard: int
    counts: Counts
    stages: StageTimes


@dataclass(frozen=True)
class Finished:
    """A shard is in its place.

    Attributes:
      stages: the times of all shards of the worker.
    """

    worker: Hashable
    shard: int
    entry: FinishedEntry
    stages: StageTimes


@dataclass(frozen=True)
class Log:
    """A message for the log."""

    level: int
    text: str


Message: TypeAlias = Ready | Progress | Finished | Log


class Executor(AbstractContextManager["Executor"]):
    """Workers that hold the model; a context manager, at whose end they are gone."""

    def __init__(self) -> None:
        self._ready: Ready | None = None
        self._logged: set[str] = set()
        self._begun: dict[int, Counts] = {}  # the totals of shards that are not finished

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def ready(self) -> Ready:
        """What the first worker has reported; all take its scales and canaries."""
        assert self._ready is not None
        return self._ready

    def run(
        self,
        shards: Sequence[int],
        finished: Callable[[int, FinishedEntry], None],
        progress: Callable[[Counts], None],
        monitor: RunMonitor,
    ) -> None:
        """Computes shards, each by the next worker that is free.

        For each shard that is in its place `finished` is called, in the order of their ends; now
        and then `progress`, with the totals of the shards that are not finished.

        Raises:
          Exception: what ended a worker.
        """
        left = set(shards)
        for message in self._compute(shards):
            if message is not None:
                self._note(message)
            if isinstance(message, Progress | Finished):
                monitor.note(message.worker, message.stages)
            if isinstance(message, Progress) and message.shard in left:
                self._begun[message.shard] = message.counts
            if isinstance(message, Finished) and message.shard in left:
                left.discard(message.shard)
                self._begun.pop(message.shard, None)
                finished(message.shard, message.entry)
            progress(Counts.sum(self._begun.values()))

    @abstractmethod
    def _compute(self, shards: Sequence[int]) -> Iterator[Message | None]:
        """Computes shards; yields what workers report, and None now and then."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the workers; what they have half-written is removed."""

    def _note(self, message: Message) -> None:
        """Logs what workers report, once if all agree; raises DeviceError if devices differ."""
        if isinstance(message, Log) and message.text not in self._logged:
            self._logged.add(message.text)
            logger.log(message.level, "%s", message.text)
        if not isinstance(message, Ready):
            return
        self._ready = self._ready or message
        both = self.ready.recipe.arithmetic, message.recipe.arithmetic
        if differences := find_differences(*both, between=" and"):
            raise DeviceError(
                "the workers of the run do not compute on the same kind of device: "
                f"{'; '.join(differences)}; name one with the setting device"
            )
        if message.processor != self.ready.processor:
            text = (
                f"the workers of the run compute on different processors ({self.ready.processor}; "
                f"{message.processor}): the last digits of features may differ from shard to shard"
            )
            self._note(Log(logging.WARNING, text))
