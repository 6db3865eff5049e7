"""Engine: computes the texts of many requests together, in the shapes that `extract` uses."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence

from bert_features.config.features import OutputSpec
from bert_features.errors import BertFeaturesError
from bert_features.extraction.counts import Counts
from bert_features.extraction.pipeline import Pipeline
from bert_features.readers.input_example import InputExample
from bert_features.serving.queue import Queue, RequestJob, Slice

logger = logging.getLogger("bert_features")

# Batches of a load, at least and at most, if as many texts wait: enough for rows of about one
# length. On a CPU the largest takes less than a second (MiniLM, two cores).
_FEWEST_BATCHES, _MOST_BATCHES = 4, 16
# Texts that are no longer few tokens for a CPU.
_WARM_TEXTS = 64
# Combinations of outputs that are kept traced, which takes memory.
_MAX_EXTRACTORS = 32
# How much the last load counts in the mean speed.
_WEIGHT = 0.2
_FIRST_TOKENS_PER_SECOND = 5000.0


class Engine:
    """Computes the texts of many requests together.

    All that can be asked for is the outputs of `extractor`. After each load `noted` is called with
    its counts and its seconds.
    """

    def __init__(
        self,
        extractor: Pipeline,
        *,
        queue: Queue,
        noted: Callable[[Counts, float], None] = lambda counts, seconds: None,
    ) -> None:
        # As many as the device computes at the same time, and one that prepares the next load. On a
        # CPU that takes the same cores, and without it loads are larger.
        self._lanes = max(extractor.in_flight - extractor.preparation.runtime.any_shape, 2)
        self._batch_tokens = extractor.preparation.tokens_of_batch
        self.queue = queue
        self._noted = noted
        self._extractor_of = functools.lru_cache(_MAX_EXTRACTORS)(extractor.with_outputs)
        self._making = threading.Lock()
        self._speed = _FIRST_TOKENS_PER_SECOND
        self._threads = [
            threading.Thread(target=self._work, name=f"engine-{i}", daemon=True)
            for i in range(self._lanes)
        ]
        for thread in self._threads:
            thread.start()

    def warm_up(self, outputs: Sequence[OutputSpec], *, many: bool = False) -> None:
        """Computes a text, so that the first request for these outputs does not wait for a trace.

        With `many` every trace is made: one for many texts on a CPU, half a second for six layers;
        elsewhere one for each shape of a batch, which has to be compiled.
        """
        extractor = self._extractor(_names(outputs))
        any_shape = extractor.preparation.runtime.any_shape
        if many and not any_shape:
            extractor.warm_up()
        for texts in (1, _WARM_TEXTS) if many and any_shape else (1,):
            examples = [InputExample(number, "warm up", spans=()) for number in range(texts)]
            extractor.compute(examples, Counts())

    def submit(
        self, examples: Sequence[InputExample], tokens: Sequence[int], outputs: Sequence[OutputSpec]
    ) -> RequestJob | None:
        """Queues texts that have their prompts, and the tokens of each; None if too many wait."""
        job = RequestJob(examples, tokens, _names(outputs))
        return job if self.queue.put(job) else None

    @property
    def seconds_queued(self) -> float:
        """How long what waits will take, about."""
        return self.queue.tokens / self._speed

    @property
    def is_alive(self) -> bool:
        """Whether all its threads work."""
        return all(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        bounds = _FEWEST_BATCHES * self._batch_tokens, _MOST_BATCHES * self._batch_tokens
        while True:
            slices = self.queue.take(*bounds, shares=max(self._lanes - 1, 1))
            began = time.monotonic()
            counts = Counts()
            self._compute(slices, counts)
            seconds = max(time.monotonic() - began, 1e-6)
            # Other lanes compute at the same time.
            speed = sum(piece.tokens for piece in slices) / seconds * self._lanes
            self._speed += _WEIGHT * (speed - self._speed)
            self._noted(counts, seconds)

    def _compute(self, slices: list[Slice], counts: Counts) -> None:
        examples = [example for piece in slices for example in piece.examples]
        try:
            results = self._extractor(slices[0].job.outputs).compute(examples, counts, prompt="")
        except Exception as error:
            self._fail(slices, counts, error)
            return
        first = 0
        for piece in slices:
            stop = first + len(piece.numbers)
            try:
                piece.job.finish(piece.numbers, results.part(first, stop))
            except Exception as error:  # as too little memory; the thread continues
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

    def _extractor(self, outputs: tuple[str, ...]) -> Pipeline:
        with self._making:  # once, although several lanes may ask for it
            return self._extractor_of(outputs)


def _names(outputs: Sequence[OutputSpec]) -> tuple[str, ...]:
    """The names of outputs, the same in whatever order a request has them."""
    return tuple(sorted(output.name for output in outputs))
