"""The loop over batches: one thread prepares them, the device computes, results come in order."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeVar, cast

import numpy as np

from bert_features.monitor.stages import StageClock
from bert_features.runtime.base import CompiledStep, Started

_Item = TypeVar("_Item")
# What an item without arrays comes to.
_NOTHING = Started(dict, done=lambda: True, times=lambda: (0.0, 0.0))


def run_step(
    step: CompiledStep,
    items: Iterator[_Item],
    inputs: Callable[[_Item], Mapping[str, np.ndarray]],
    stages: StageClock | None = None,
    *,
    ahead: bool = True,
) -> Iterator[tuple[_Item, dict[str, np.ndarray]]]:
    """Runs a step over batches; as many are under way as the step asks for.

    Args:
      step: the compiled step.
      items: the batches, in whatever form the caller has them. A thread takes them.
      inputs: gives the arrays [B, S] of an item that the step takes. An item without arrays takes
        its turn without being computed.
      stages: measures the device, and what the caller's thread waits for.
      ahead: whether items are read ahead. If not, the caller's thread does one after the other: for
        input of one batch, where threads take longer to start than a sentence to tokenize, and for
        input that waits for the output of the batch before.

    Yields:
      Each item with its outputs, [B, S, D] or [B, D], in the order of the items.
    """
    stages = stages or StageClock()
    stages.lead("input")
    if not ahead:
        for item in items:
            stages.lead("device")
            arrays = inputs(item)
            outputs = step.run(arrays) if arrays else {}
            stages.computed(None)
            yield item, outputs
            stages.lead("input")
        return
    under_way: deque[tuple[_Item, Started]] = deque()
    try:
        for item in prefetched(items):
            stages.lead("device")
            arrays = inputs(item)
            under_way.append((item, step(arrays) if arrays else _NOTHING))
            while under_way and (len(under_way) == step.in_flight or under_way[0][1].done()):
                yield _finish_first(under_way, stages)
            stages.lead("input")
        while under_way:
            yield _finish_first(under_way, stages)
    finally:
        for _, started in under_way:  # of a run that failed, or that its caller left
            started.cancel()


def _finish_first(
    under_way: deque[tuple[_Item, Started]], stages: StageClock
) -> tuple[_Item, dict[str, np.ndarray]]:
    """Waits for the batch whose turn it is: the item and its outputs."""
    stages.lead("device")
    item, started = under_way.popleft()
    outputs = started()
    stages.computed(started.times and started.times())
    return item, outputs


def prefetched(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """The same items, taken by a thread of their own.

    That thread may block in TensorFlow on slow input; the caller's thread still hears Ctrl-C. It
    closes the items, a generator, when it ends.
    """
    ready: queue.Queue[tuple[_Item | None, BaseException | None]] = queue.Queue(maxsize=1)
    unwanted = threading.Event()

    def offer(item: _Item | None, error: BaseException | None = None) -> None:
        while not unwanted.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, error), timeout=0.1)
                return

    def take() -> None:
        try:
            for item in items:
                offer(item)
                if unwanted.is_set():
                    return
            offer(None, StopIteration())
        except BaseException as error:
            offer(None, error)
        finally:
            if isinstance(items, Generator):
                items.close()  # so that what it has prefetched itself ends too

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield cast(_Item, item)
    finally:
        unwanted.set()
        # It ends by itself unless its input keeps it waiting; Python should not end before it.
        thread.join(timeout=1.0)
