"""The queue of a replica: texts of many requests, taken together as one load for the device.

Half of a load is of the oldest request; the rest is shared out to all that wait for the same
outputs. So a request of thousands of texts does not hold up one of a single text, a stream of small
requests does not hold up a large one for ever, and the device gets rows that fill its batches.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from bert_features.formats.records import FeatureBatch
from bert_features.readers.input_example import InputExample


@dataclass(eq=False)
class RequestJob:
    """The texts of one request.

    Attributes:
      answer: becomes the results of all texts, in their order; cancelled, it is computed no more.
    """

    examples: Sequence[InputExample]
    tokens: Sequence[int]
    outputs: tuple[str, ...]
    answer: "Future[FeatureBatch]" = field(default_factory=Future)
    _taken: int = 0
    _parts: dict[int, FeatureBatch] = field(default_factory=dict)
    _done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_taken(self) -> bool:
        """Whether all its texts were taken."""
        return self._taken == len(self.examples)

    def take(self, tokens: int) -> "Slice":
        """Takes the next texts: as many as hold `tokens`, and at least one."""
        start = stop = self._taken
        held = 0
        while stop < len(self.examples) and (stop == start or held + self.tokens[stop] <= tokens):
            held += self.tokens[stop]
            stop += 1
        self._taken = stop
        return Slice(self, start, stop, held)

    def finish(self, start: int, results: FeatureBatch) -> None:
        """Takes the results of the texts from `start` on."""
        with self._lock:
            self._parts[start] = results
            self._done += len(results)
            if self._done < len(self.examples):
                return
        joined = FeatureBatch.join([self._parts[key] for key in sorted(self._parts)])
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(joined)

    def fail(self, error: BaseException) -> None:
        """Ends it with an error, unless it has ended."""
        with self._lock:
            if not self.answer.done() and self.answer.set_running_or_notify_cancel():
                self.answer.set_exception(error)


class Slice(NamedTuple):
    """Some texts of a job, `examples[start:stop]`, and their tokens."""

    job: RequestJob
    start: int
    stop: int
    tokens: int

    @property
    def examples(self) -> Sequence[InputExample]:
        """The texts."""
        return self.job.examples[self.start : self.stop]


class Queue:
    """Jobs that wait; safe to use from several threads.

    A job alone is taken whatever its size. `changed` is called with the tokens that wait, whenever
    their number has changed.
    """

    def __init__(
        self, max_tokens: int, changed: Callable[[int], None] = lambda tokens: None
    ) -> None:
        self._max_tokens = max_tokens
        self._noted = changed
        self._jobs: deque[RequestJob] = deque()  # the oldest first
        self._turns: deque[RequestJob] = (
            deque()
        )  # those first that have waited longest for their turn
        self._tokens = 0
        self._changed = threading.Condition()

    @property
    def tokens(self) -> int:
        """Tokens that wait."""
        return self._tokens

    def put(self, job: RequestJob) -> bool:
        """Adds a job, if there is room for it; gives whether there was."""
        size = sum(job.tokens)
        with self._changed:
            if self._tokens and self._tokens + size > self._max_tokens:
                return False
            self._jobs.append(job)
            self._turns.append(job)
            self._tokens += size
            self._noted(self._tokens)
            self._changed.notify()
        job.answer.add_done_callback(lambda answer: self._drop(job))
        return True

    def take(self, smallest: int, largest: int, *, shares: int = 1) -> list[Slice]:
        """Waits for jobs and takes texts of those that want the outputs of the first.

        Args:
          smallest: tokens to take, about, however few wait.
          largest: tokens to take at most, about.
          shares: into how many loads what waits is divided, within these bounds.

        Returns:
          At least one slice.
        """
        with self._changed:
            while not self._jobs:
                self._changed.wait()
            return self._take(min(max(self._tokens // shares, smallest), largest))

    def _take(self, tokens: int) -> list[Slice]:
        oldest = self._jobs[0]
        is_alone = all(job.outputs != oldest.outputs for job in islice(self._jobs, 1, None))
        slices = [self._cut(oldest, tokens if is_alone else tokens // 2)]
        left = tokens - slices[0].tokens
        while left > 0 and (jobs := [j for j in self._turns if j.outputs == oldest.outputs]):
            share = left // len(jobs)
            for job in jobs:
                slices.append(self._cut(job, share))
                left -= slices[-1].tokens
                if left <= 0:
                    break
        return slices

    def _cut(self, job: RequestJob, tokens: int) -> Slice:
        """Takes texts of a job, whose turn then comes again after the others."""
        piece = job.take(tokens)
        self._tokens -= piece.tokens
        self._noted(self._tokens)
        self._turns.remove(job)
        if job.is_taken:
            self._jobs.remove(job)
        else:
            self._turns.append(job)
        return piece

    def _drop(self, job: RequestJob) -> None:
        """Forgets what waits of a job that nobody waits for."""
        with self._changed:
            if job in self._jobs:
                self._cut(job, sum(job.tokens))
