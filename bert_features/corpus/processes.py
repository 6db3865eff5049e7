"""Processes of this machine that compute the shards of one run."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType, ModuleType
from typing import NoReturn

from bert_features.corpus.executor import Executor, Finished, Message, Ready
from bert_features.corpus.shards import ShardJob
from bert_features.corpus.worker import load_writer, portable, report_logs, write_shard
from bert_features.errors import DeviceError, describe_exit
from bert_features.extraction.forks import process_context
from bert_features.files import is_writing
from bert_features.machine.hardware import limit_cores
from bert_features.machine.shares import Share

_TICK_SECONDS = 0.1
_GRACE_SECONDS = 10.0  # to remove what is half-written
_ENDINGS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# The exit statuses of a process that the run itself has ended.
_ENDED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class Processes(Executor):
    """Processes of this machine, each with its own devices and its own pipe to the run.

    Raises:
      BertFeaturesError: a process could not load the model.
    """

    def __init__(self, job: ShardJob, shares: Sequence[Share]) -> None:
        super().__init__()
        self._workers: dict[Connection, BaseProcess] = {}
        context = process_context(job.config)
        try:
            with _without_main_module():
                for share in shares:
                    ours, its = context.Pipe()
                    self._workers[ours] = context.Process(target=_work, args=(job, share, its))
                    self._workers[ours].start()
                    its.close()  # the pipe then ends with the process
            ready = 0
            while ready < len(shares):
                for _, message in self._take_messages():
                    self._note(message)
                    ready += isinstance(message, Ready)
        except BaseException:
            self.stop()
            raise

    def _compute(self, shards: Sequence[int]) -> Iterator[Message | None]:
        left, idle = deque(shards), list(self._workers)
        while left or len(idle) < len(self._workers):
            while left and idle:
                with contextlib.suppress(OSError):  # it has ended, and so does its pipe
                    idle.pop().send((left.popleft(), self.ready.recipe))
            yield None
            for worker, message in self._take_messages():
                if isinstance(message, Finished):
                    idle.append(worker)
                yield message

    def _take_messages(self) -> Iterator[tuple[Connection, Message]]:
        """What processes have reported, by their pipes; raises an error, or DeviceError at an end.

        Without news it waits for a moment.
        """
        for worker in wait(list(self._workers), _TICK_SECONDS):
            assert isinstance(worker, Connection)
            try:
                message = worker.recv()
            except (EOFError, OSError):  # the process was killed, or has crashed
                self.stop()
                codes = [process.exitcode or 0 for process in self._workers.values()]
                code = next((code for code in codes if code not in _ENDED), -signal.SIGTERM)
                ending = f"a process of the run ended by {describe_exit(code)}"
                raise DeviceError(ending) from None
            if isinstance(message, Exception):
                raise message
            yield worker, message

    def stop(self) -> None:
        """Ends the processes."""
        begun = [process for process in self._workers.values() if process.pid is not None]
        for process in begun:
            process.terminate()  # does nothing to one that has ended
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in begun:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()


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


def _work(job: ShardJob, share: Share, run: Connection) -> None:
    """Loads the model, then computes the shards that the run asks for; an error goes to the run."""
    for number in _ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(share.environment)
    if share.cores is not None:  # before TensorFlow counts them
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, share.cores)
        else:
            limit_cores(len(share.cores))
    lock = threading.Lock()  # any thread may log

    def report(message: Message | Exception) -> None:
        with lock, contextlib.suppress(OSError):  # of a run that was killed
            run.send(message)

    report_logs(report)
    try:
        writer = load_writer(job)
        report(writer.ready)
        while True:
            shard, recipe = run.recv()
            report(write_shard(writer, shard, recipe, report))
    except Exception as error:
        report(portable(error))
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
