"""Several processes that compute the shards of one run."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.messages import Failed, Finished, Job, Log, Message, Progress, Ready
from bert_features.corpus.pool import Pool
from bert_features.errors import DeviceError
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import StorePlace
from bert_features.formats.manifest import FinishedEntry, Manifest
from bert_features.machine.shares import Share
from bert_features.monitor.run import RunMonitor

_PACKAGE = Path(__file__).resolve().parents[1]
_GRACE_SECONDS = 10.0  # to remove what is half-written


class Workers(Pool):
    """Processes of this machine, each with its own devices.

    At the end of the block they are gone, and what they had half-written too.

    Args:
      config: the settings.
      manifest: the run.
      shares: what each process may use.
      place: where they share the features of texts that repeat; None for nowhere.

    Raises:
      BertFeaturesError: a process could not load the model.
    """

    def __init__(
        self,
        config: ExtractConfig,
        manifest: Manifest,
        shares: Sequence[Share],
        place: StorePlace | None = None,
    ) -> None:
        super().__init__()
        self._processes: dict[Connection, subprocess.Popen[bytes]] = {}
        try:
            pipes = [self._start(share) for share in shares]  # they all begin to import
            for pipe, share in zip(pipes, shares, strict=True):
                self._send(pipe, Job(config, manifest, share.cores, place))
            self.device, self.processor = self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def run(
        self,
        shards: Iterable[int],
        finished: Callable[[int, FinishedEntry], None],
        progress: Callable[[Counts], None],
        monitor: RunMonitor | None = None,
    ) -> None:
        """See `Pool`."""
        left = deque(shards)
        busy: dict[Connection, Counts] = {}
        for pipe in list(self._processes)[: len(left)]:
            self._send(pipe, left.popleft())
            busy[pipe] = Counts()
        while busy:
            for pipe in self._with_messages(busy):
                message = self._receive(pipe)
                if monitor and isinstance(message, Progress | Finished):
                    monitor.note(pipe, message.stages)
                if isinstance(message, Progress):
                    busy[pipe] = Counts(**message.counts)
                elif isinstance(message, Finished):
                    del busy[pipe]
                    finished(message.shard, message.entry)
                    if left:
                        self._send(pipe, left.popleft())
                        busy[pipe] = Counts()
                progress(Counts.sum(busy.values()))

    def stop(self) -> None:
        """Ends the processes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)  # does nothing to one that has ended
        deadline = time.monotonic() + _GRACE_SECONDS
        for pipe, process in self._processes.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
            pipe.close()
        self._processes.clear()

    def _start(self, share: Share) -> Connection:
        ours, theirs = Pipe()
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            # Not from the current folder (-P), but from where this process has the package.
            [sys.executable, "-P", "-m", "bert_features.corpus.worker", str(descriptor)],
            env={**os.environ, **share.environment, "PYTHONPATH": _search_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[descriptor],
        )
        theirs.close()
        self._processes[ours] = process
        return ours

    def _send(self, pipe: Connection, message: Job | int) -> None:
        try:
            pipe.send(message)
        except OSError:  # it has ended; what it said before that comes first
            while True:
                self._receive(pipe)

    def _wait_until_ready(self) -> tuple[str, str]:
        """The device and the processor of all processes."""
        waiting, devices, processor = set(self._processes), set(), ""
        while waiting:
            for pipe in self._with_messages(waiting):
                message = self._receive(pipe)
                if isinstance(message, Ready):
                    waiting.discard(pipe)
                    devices.add(message.device)
                    processor = message.processor  # they are on one machine
        if len(devices) > 1:
            raise DeviceError(
                f"the processes do not compute on the same kind of device: {'; '.join(devices)}; "
                "name one with the setting device"
            )
        return devices.pop(), processor

    def _with_messages(self, pipes: Iterable[Connection]) -> list[Connection]:
        """Those of the pipes that have a message, or whose process has ended; at least one."""
        return [pipe for pipe in wait(list(pipes)) if isinstance(pipe, Connection)]

    def _receive(self, pipe: Connection) -> Message | None:
        """The next message; None for one that was for the log."""
        try:
            message: Message = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._end_of(self._processes[pipe]) from None
        if isinstance(message, Failed):
            raise message.exception()
        if isinstance(message, Log):
            self._log(message)
            return None
        return message

    def _end_of(self, process: subprocess.Popen[bytes]) -> DeviceError:
        status = process.wait()
        by = f"exit status {status}"
        if status < 0:
            by = signal.Signals(-status).name
            by += ", as the system ends what takes too much memory" if by == "SIGKILL" else ""
        return DeviceError(f"a process of the run ended by {by}")


def _search_path() -> str:
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [str(_PACKAGE.parent), given]))
