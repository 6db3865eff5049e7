"""Engine: computes the texts of many requests together, in the shapes that `extract` uses."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from bert_features.config.output_specs import OutputSpec
from bert_features.errors import BertFeaturesError
from bert_features.extraction.counts import Counts
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.finished import Results
from bert_features.readers.input_example import InputExample
from bert_features.serving.queue import Job, Queue, Slice

logger = logging.getLogger("bert_features")

# While one load computes, the next is tokenised and the last put together.
_LANES = 2
# Of a load: enough to fill batches by length, and less than a second of MiniLM on two cores.
_LOAD_TOKENS = 4096
# How much the last load counts in the mean speed.
_WEIGHT = 0.2
_FIRST_TOKENS_PER_SECOND = 5000.0


class Engine:
    """Computes the texts of many requests together.

    Args:
      extractor: computes; its outputs are all that can be asked for.
      queued_tokens: tokens that may wait.
      noted: called after each load with its counts and its seconds.

    Attributes:
      queue: what waits.
    """

    def __init__(
        self,
        extractor: FeatureExtractor,
        *,
        queued_tokens: int,
        noted: Callable[[Counts, float], None] = lambda counts, seconds: None,
    ) -> None:
        self.queue = Queue(queued_tokens)
        self._noted = noted
        self._all = extractor
        self._extractors: dict[tuple[str, ...], FeatureExtractor] = {}
        self._making = threading.Lock()
        self._speed = _FIRST_TOKENS_PER_SECOND
        self._threads = [
            threading.Thread(target=self._work, name=f"engine-{i}", daemon=True)
            for i in range(_LANES)
        ]
        for thread in self._threads:
            thread.start()

    def warm_up(self, outputs: Sequence[OutputSpec]) -> None:
        """Computes a text, so that the first request does not wait for a trace.

        Args:
          outputs: the outputs that requests will ask for.
        """
        names = tuple(output.name for output in outputs)
        self._extractor(names).compute([InputExample(0, "warm up")], Counts())

    def submit(
        self, examples: Sequence[InputExample], tokens: Sequence[int], outputs: tuple[str, ...]
    ) -> Job:
        """Queues texts.

        Args:
          examples: at least one text.
          tokens: the tokens of each.
          outputs: names of the outputs to compute.

        Raises:
          QueueFullError: too many tokens wait already.
        """
        job = Job(examples, tokens, outputs)
        self.queue.put(job)
        return job

    @property
    def seconds_queued(self) -> float:
        """How long what waits will take, about."""
        return self.queue.tokens / self._speed

    def close(self, seconds: float = 5.0) -> None:
        """Ends the threads when nothing waits any more; waits that long for them."""
        self.queue.close()
        for thread in self._threads:
            thread.join(seconds)

    def _work(self) -> None:
        while slices := self.queue.take(_LOAD_TOKENS):
            began = time.monotonic()
            counts = Counts()
            self._compute(slices, counts)
            seconds = max(time.monotonic() - began, 1e-6)
            # Other lanes compute at the same time.
            speed = sum(piece.tokens for piece in slices) / seconds * _LANES
            self._speed += _WEIGHT * (speed - self._speed)
            self._noted(counts, seconds)

    def _compute(self, slices: list[Slice], counts: Counts) -> None:
        examples = [example for piece in slices for example in piece.examples]
        try:
            results = self._extractor(slices[0].job.outputs).compute(examples, counts)
        except Exception as error:
            self._fail(slices, counts, error)
            return
        first = 0
        for piece in slices:
            stop = first + len(piece.examples)
            try:
                piece.job.finish(piece.start, _part(results, first, stop))
            except Exception as error:  # as too little memory; the thread goes on
                self._fail([piece], counts, error)
            first = stop

    def _fail(self, slices: list[Slice], counts: Counts, error: Exception) -> None:
        """Computes each slice alone, so that only the request with the fault fails."""
        if len(slices) > 1:
            for piece in slices:
                self._compute([piece], counts)
            return
        if not isinstance(error, BertFeaturesError):
            logger.error("a request failed", exc_info=error)
        slices[0].job.fail(error)

    def _extractor(self, outputs: tuple[str, ...]) -> FeatureExtractor:
        with self._making:
            if outputs not in self._extractors:
                self._extractors[outputs] = self._all.with_outputs(outputs)
            return self._extractors[outputs]


def _part(results: Results, start: int, stop: int) -> Results:
    finished, counts = results
    if len(finished) == stop - start:
        return results
    columns = {name: column[start:stop] for name, column in counts.columns().items()}
    part = finished.part(start, stop)
    return Results(part, type(counts)(part.unique_ids, **columns))
