"""What a run reports about itself, for readers in other threads."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from bert_features.monitor.stages import StageClock, StageTimes


@dataclass(frozen=True)
class State:
    """How far a job is.

    Attributes:
      done: the number of things done.
      total: the number of things to do; None if unknown.
      work: what the speed is measured by.
      rate: work per second; None if unknown.
      seconds_left: None if unknown.
    """

    done: int = 0
    total: int | None = None
    work: int = 0
    rate: float | None = None
    seconds_left: float | None = None


class Pace:
    """Measures the speed of a job by what comes after its first state.

    Compiling and connecting come before it.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int, int] | None = None

    def note(self, done: int, total: int | None, work: int) -> State:
        """The state of a job that has done this much."""
        now = time.monotonic()
        self._first = self._first or (now, done, work)
        started, done_before, work_before = self._first
        seconds = now - started
        rate = (work - work_before) / seconds if work > work_before and seconds else None
        left = None
        if total is not None and done > done_before:
            left = (total - done) * seconds / (done - done_before)
        return State(done, total, work, rate, left)


@dataclass
class RunMonitor:
    """The state of a run besides its counts.

    Attributes:
      device: `cpu`, `gpu` or `tpu`; empty until the model is loaded, like the precision.
      shards: number of shards of a folder; None for a single file.
      clock: the stages of this process.
    """

    device: str = ""
    precision: str = ""
    shards: int | None = None
    clock: StageClock = field(default_factory=StageClock)
    _others: dict[Hashable, StageTimes] = field(default_factory=dict)

    def begin(self, device: str, precision: str) -> None:
        """Notes that the model is loaded."""
        self.device, self.precision = device, precision

    def note(self, process: Hashable, times: StageTimes) -> None:
        """Takes the latest times of another process."""
        self._others[process] = times

    @property
    def processes(self) -> int:
        """The number of processes that have computed something."""
        return max(1, len(self._others))

    def times(self) -> StageTimes:
        """The times of all processes together."""
        others = self._others.copy().values()
        return StageTimes.sum([self.clock.times(), *others])
