"""The queue of a replica: texts of many requests, taken together as one load for the device.

Half of a load is of the oldest request; the rest is shared out to all that wait for the same
outputs. So a request of thousands of texts does not hold up one of a single text, a stream of small
requests does not hold up a large one for ever, and the device gets rows that fill its batches. A
request gives its longest texts first, and the others give texts of about these lengths: rows of one
length need no padding.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

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
    _left: list[int] = field(init=False)  # the texts that were not taken, the longest first
    _parts: list[FeatureBatch] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)  # the texts of the parts
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._left = sorted(range(len(self.examples)), key=self._rank)

    def _rank(self, number: int) -> int:
        return -self.tokens[number]

    @property
    def is_taken(self) -> bool:
        """Whether all its texts were taken."""
        return not self._left

    def take(self, tokens: int, longest: int | None = None) -> "Slice":
        """Takes texts that hold `tokens`, and at least one.

        The first has at most `longest` tokens, if any has; shorter ones follow, then longer ones.
        """
        left, held = self._left, 0
        first = 0 if longest is None else bisect_left(left, -longest, key=self._rank)
        start = stop = min(first, len(left) - 1)
        while stop < len(left) and (stop == start or held + self.tokens[left[stop]] <= tokens):
            held += self.tokens[left[stop]]
            stop += 1
        while start and stop == len(left) and held + self.tokens[left[start - 1]] <= tokens:
            start -= 1
            held += self.tokens[left[start]]
        numbers = left[start:stop]
        del left[start:stop]
        return Slice(self, numbers, held)

    def finish(self, numbers: Sequence[int], results: FeatureBatch) -> None:
        """Takes the results of some texts."""
        with self._lock:
            self._parts.append(results)
            self._numbers += numbers
            if len(self._numbers) < len(self.examples):
                return
        joined = FeatureBatch.join(self._parts)
        self._parts.clear()  # before another copy
        order = np.argsort(self._numbers)
        if (np.diff(order) != 1).any():
            joined = joined.take(order)
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(joined)

    def fail(self, error: BaseException) -> None:
        """Ends it with an error, unless it has ended."""
        with self._lock:
            if not self.answer.done() and self.answer.set_running_or_notify_cancel():
                self.answer.set_exception(error)


class Slice(NamedTuple):
    """Some texts of a job, by their numbers, and the tokens that they hold."""

    job: RequestJob
    numbers: list[int]
    tokens: int

    @property
    def examples(self) -> list[InputExample]:
        """The texts."""
        return [self.job.examples[number] for number in self.numbers]


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
        longest = oldest.tokens[slices[0].numbers[0]]
        while left > 0 and (jobs := [j for j in self._turns if j.outputs == oldest.outputs]):
            share = left // len(jobs)
            for job in jobs:
                slices.append(self._cut(job, share, longest))
                left -= slices[-1].tokens
                if left <= 0:
                    break
        return slices

    def _cut(self, job: RequestJob, tokens: int, longest: int | None = None) -> Slice:
        """Takes texts of a job, whose turn then comes again after the others."""
        piece = job.take(tokens, longest)
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
