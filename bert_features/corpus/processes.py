"""Processes of this machine that compute the shards of one run."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.queues import SimpleQueue
from types import FrameType, ModuleType
from typing import Any, NoReturn

from bert_features.corpus.executor import Executor, Finished, Message, Ready
from bert_features.corpus.shards import Job, ShardWriter
from bert_features.corpus.worker import load_writer, portable, report_logs, write_shard
from bert_features.errors import DeviceError, describe_exit
from bert_features.files import is_writing
from bert_features.machine.shares import Share

_TICK_SECONDS = 0.1
_GRACE_SECONDS = 10.0  # to remove what is half-written
_ENDINGS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# The exit statuses of a process that the run itself has ended.
_ENDED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class Processes(Executor):
    """Processes of this machine, each with its own devices.

    Raises:
      BertFeaturesError: a process could not load the model.
    """

    def __init__(self, job: Job, shares: Sequence[Share]) -> None:
        super().__init__()
        context = _SpawnContext()
        self._processes = context.processes
        self._messages: SimpleQueue[Message | Exception] = context.SimpleQueue()
        for_each: SimpleQueue[Share] = context.SimpleQueue()
        for share in shares:
            for_each.put(share)
        self._count = len(shares)
        self._pool = ProcessPoolExecutor(
            self._count, context, initializer=_begin, initargs=(job, for_each, self._messages)
        )
        try:
            with _without_main_module():
                for _ in shares:
                    self._pool.submit(_do_nothing)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        ready = 0
        while ready < self._count:
            # Not by the tasks: a process that is ready does those of one that still loads.
            has_ended = any(process.exitcode is not None for process in self._processes)
            for message in self._take_messages():
                self._note(message)
                ready += isinstance(message, Ready)
            if has_ended:
                self.stop()
                raise self._describe_end()
            time.sleep(_TICK_SECONDS)

    def _compute(self, shards: Sequence[int]) -> Iterator[Message | None]:
        left, pending = iter(shards), set[Future[Finished]]()
        while True:
            for shard in itertools.islice(left, self._count - len(pending)):
                with self._broken_pool():
                    pending.add(self._pool.submit(_write, shard, self.ready.ranges))
            if not pending:
                return
            done, pending = wait(pending, _TICK_SECONDS, FIRST_COMPLETED)
            yield None
            yield from self._take_messages()
            for future in done:
                with self._broken_pool():
                    yield future.result()

    def _take_messages(self) -> Iterator[Message]:
        while not self._messages.empty():
            message = self._messages.get()
            if isinstance(message, Exception):
                raise message
            yield message

    @contextlib.contextmanager
    def _broken_pool(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            self.stop()
            raise self._describe_end() from None

    def _describe_end(self) -> DeviceError:
        """The error of a process that was killed or has crashed."""
        codes = [process.exitcode or 0 for process in self._processes]
        code = next((code for code in codes if code not in _ENDED), -signal.SIGTERM)
        return DeviceError(f"a process of the run ended by {describe_exit(code)}")

    def stop(self) -> None:
        """Ends the processes."""
        begun = [process for process in self._processes if process.pid is not None]
        for process in begun:
            process.terminate()  # does nothing to one that has ended
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in begun:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
        self._pool.shutdown(cancel_futures=True)


class _SpawnContext(SpawnContext):
    """Keeps the processes that a pool begins."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self.processes.append(SpawnProcess(*arguments, **options))
        return self.processes[-1]


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Hides the program, which a process would run again: it may have no `if __name__ …`."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


# The rest runs in the processes.

_writer: ShardWriter
_messages: "SimpleQueue[Message | Exception]"


def _begin(
    job: Job, shares: "SimpleQueue[Share]", messages: "SimpleQueue[Message | Exception]"
) -> None:
    """Loads the model; an error goes to the run, which ends this process."""
    global _writer, _messages
    for number in _ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    share = shares.get()
    os.environ.update(share.environment)
    if share.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share.cores)  # before TensorFlow counts them
    report_logs(messages.put)
    try:
        _writer, _messages = load_writer(job), messages
        messages.put(_writer.ready)
    except Exception as error:
        messages.put(portable(error))


def _do_nothing() -> None:
    """A task that makes the pool start a process."""


def _write(shard: int, ranges: dict[str, Any]) -> Finished:
    try:
        return write_shard(_writer, shard, ranges, _messages.put)
    except Exception as error:
        raise portable(error)  # noqa: B904 - its note has the traceback
    except KeyboardInterrupt:  # `_end`; what was half-written is removed
        os._exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    """Ends this process once the run was killed; it would hold its devices."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # Ctrl-C reaches this process twice: from the terminal and from the run. Not SIG_IGN: Python
    # complains of a signal that has come already and has no handler any more.
    for other in _ENDINGS:
        signal.signal(other, lambda number, frame: None)
    if is_writing():
        raise KeyboardInterrupt
    os._exit(128 + number)
