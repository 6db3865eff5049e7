"""Writing beside computing: a thread writes finished examples while the device computes."""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from bert_features.formats.records import FeatureBatch
from bert_features.monitor.stages import StageClock

# A thread that has given up the interpreter's lock, as for a write or an operation of TensorFlow,
# gets it back from a busy thread only after this time; Python's own 5 ms are as long as the work.
_SWITCH_SECONDS = 0.0005
# What a writer may still hold once `write` has returned: a group, and what the thread of its file
# has. If a megabatch waited with nothing of it written, the memory of the one before might be in
# use.
_HELD_BYTES = 64 << 20


def write_behind(
    batches: Iterable[FeatureBatch],
    write: Callable[[FeatureBatch], None],
    *,
    max_bytes: int,
    stages: StageClock | None = None,
) -> None:
    """Writes batches in their order in a thread of its own, while the next ones are computed.

    The examples of a megabatch are finished all at once. Without this the device would wait
    until they are on the disk.

    Args:
      batches: the batches; taken by the caller's thread.
      write: writes one batch. It is never called again once this function has ended or raised.
      max_bytes: bytes of features that may wait for their turn, or that `write` may hold for a
        while after its return: a quarter of them, and at most 64 MiB; a single batch may have more.
      stages: measures writing, and what the caller's thread waits for.

    Raises:
      Exception: the first that `batches` or `write` raised.
    """
    stages = stages or StageClock()
    max_bytes -= min(max_bytes // 4, _HELD_BYTES)
    waiting: deque[tuple[Future[None], int]] = deque()
    held = 0

    def write_timed(batch: FeatureBatch) -> None:
        with stages.timing("write"):
            write(batch)

    with _switching_often(), ThreadPoolExecutor(1, "write") as thread:
        try:
            for batch in batches:
                size = sum(values.nbytes for values in batch.features.values())
                while waiting and (waiting[0][0].done() or held + size > max_bytes):
                    stages.lead("write")
                    held -= _wait_for_first(waiting)
                stages.lead("assemble")
                held += size
                waiting.append((thread.submit(write_timed, batch), size))
                del batch  # the thread frees its memory
            stages.lead("write")
            while waiting:
                _wait_for_first(waiting)
            stages.lead("files")
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _wait_for_first(waiting: deque[tuple[Future[None], int]]) -> int:
    """Waits for the batch whose turn it is; gives its size, or raises what its writing raised."""
    future, size = waiting.popleft()
    future.result()
    return size


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """Lets the threads of this process take turns more often, until the block ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
