"""What a run reports about itself, for whoever looks at it from another thread."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from bert_features.monitor.stages import StageClock, StageTimes


@dataclass
class RunMonitor:
    """The state of a run besides its counts.

    Attributes:
      checkpoint: the name of the checkpoint; empty until the model is loaded, like the next three.
      runtime: `tensorflow` or `jax`.
      device: kind of device.
      precision: precision of the arithmetic.
      shards: number of shards of a folder; None for a single file.
      finished_shards: those that are finished.
      processes: number of processes that compute.
      clock: the stages of this process.
    """

    checkpoint: str = ""
    runtime: str = ""
    device: str = ""
    precision: str = ""
    shards: int | None = None
    finished_shards: int = 0
    clock: StageClock = field(default_factory=StageClock)
    _others: dict[Hashable, StageTimes] = field(default_factory=dict)
    _lost: list[StageTimes] = field(default_factory=list)

    def begin(self, checkpoint: str, device: str) -> None:
        """Notes that the model is loaded.

        Args:
          checkpoint: the name of the checkpoint.
          device: runtime, kind of device and precision, as `tensorflow, cpu, float32`.
        """
        self.checkpoint = checkpoint
        self.runtime, self.device, self.precision = device.split(", ")

    def note(self, process: Hashable, times: StageTimes) -> None:
        """Takes the latest times of another process."""
        self._others[process] = times

    def lose(self, process: Hashable) -> None:
        """Notes that another process has ended: what it did counts, what waited there does not."""
        if (times := self._others.pop(process, None)) is not None:
            self._lost.append(replace(times, queues=dict.fromkeys(times.queues, 0)))

    @property
    def processes(self) -> int:
        """The number of processes that have computed something."""
        return max(1, len(self._others))

    def times(self) -> StageTimes:
        """The times of all processes together."""
        others = self._others.copy().values()
        return StageTimes.sum([self.clock.times(), *others, *self._lost])
