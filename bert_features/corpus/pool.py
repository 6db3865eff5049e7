"""The interface of what computes the shards of a run beside its own process."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Self

from bert_features.corpus.messages import Log
from bert_features.extraction.counts import Counts
from bert_features.formats.manifest import FinishedEntry
from bert_features.monitor.run import RunMonitor

logger = logging.getLogger("bert_features")


class Pool(ABC):
    """Workers that hold the model and are ready to compute shards; a context manager.

    At the end of the block they are gone.

    Attributes:
      device: what the device of each is; see `ShardWriter.device`.
      processor: that of the first; see `ShardWriter.processor`.
    """

    device: str = ""
    processor: str = ""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @abstractmethod
    def run(
        self,
        shards: Iterable[int],
        finished: Callable[[int, FinishedEntry], None],
        progress: Callable[[Counts], None],
        monitor: RunMonitor | None = None,
    ) -> None:
        """Computes shards, each by the next worker that is free.

        Args:
          shards: their numbers.
          finished: called for each shard that is in its place, in the order of their ends.
          progress: called now and then with the totals of the shards that are not finished.
          monitor: takes the times of the workers.

        Raises:
          Exception: what ended a worker.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends the workers."""

    def _log(self, message: Log) -> None:
        """Logs what a worker has to say; what each of them says, once."""
        if message.text not in self._said:
            self._said.add(message.text)
            logger.log(message.level, "%s", message.text)
