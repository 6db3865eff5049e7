"""Stage times: how long each stage of a run worked, and which one the others waited for.

One thread leads a run: it takes batches, starts them on the device, puts the results together and
hands them to the thread that writes. Another thread reads and tokenizes, another cuts batches. So
the leading thread's time, divided by what it did or waited for, says which stage limits the run.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, TypeVar

_Item = TypeVar("_Item")

Stage = Literal["read", "tokenize", "batch", "device", "assemble", "write"]
STAGES: tuple[Stage, ...] = ("read", "tokenize", "batch", "device", "assemble", "write")
# What the leading thread does, or waits for. `files`: it opens and closes the output.
Activity = Literal["input", "device", "assemble", "write", "files"]
_ACTIVITIES: tuple[Activity, ...] = ("input", "device", "assemble", "write", "files")


@dataclass(frozen=True)
class StageTimes:
    """Where the time of a run went, in seconds.

    Attributes:
      busy: for each stage the time it worked. Stages work at the same time, so the sum may exceed
        `elapsed`. `device` is the time in which at least one batch was computed, where the runtime
        knows it (TensorFlow on a CPU); else the time in which the run started batches and waited
        for their results.
      led: the time of the leading thread, by what it did or waited for: `input` (read, tokenize and
        batch), `device`, `assemble`, `write`, and `files` (opening and closing the output).
    """

    busy: Mapping[Stage, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    led: Mapping[Activity, float] = field(default_factory=lambda: dict.fromkeys(_ACTIVITIES, 0.0))

    @property
    def elapsed(self) -> float:
        """The time of the run; of several processes, the sum of their times."""
        return sum(self.led.values())

    @property
    def waited(self) -> dict[Stage, float]:
        """For each stage the time that the whole run waited for it; the sum is `elapsed`.

        The wait for input belongs to the busier of its two threads.
        """
        waited: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        waited["device"] = self.led["device"]
        waited["assemble"] = self.led["assemble"]
        waited["write"] = self.led["write"] + self.led["files"]
        front = self.busy["read"] + self.busy["tokenize"]
        if self.busy["batch"] > front:
            waited["batch"] = self.led["input"]
        else:
            share = self.busy["read"] / front if front else 1.0
            waited["read"] = share * self.led["input"]
            waited["tokenize"] = self.led["input"] - waited["read"]
        return waited

    @property
    def limiting(self) -> Stage | None:
        """The stage that the run waited for longest; None if nothing was computed."""
        seconds, stage = max((seconds, stage) for stage, seconds in self.waited.items())
        return stage if seconds else None

    @classmethod
    def sum(cls, times: "Iterable[StageTimes]") -> Self:
        """The times of several processes together."""
        times = list(times)
        return cls(
            {stage: sum(each.busy[stage] for each in times) for stage in STAGES},
            {activity: sum(each.led[activity] for each in times) for activity in _ACTIVITIES},
        )


class StageClock:
    """Measures the stages of the runs of one process, one run at a time.

    There is no lock: each stage is noted by one thread alone. The clock is read a few times for
    each batch or megabatch, never for each example.
    """

    def __init__(self) -> None:
        self._busy: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._led: dict[Activity, float] = dict.fromkeys(_ACTIVITIES, 0.0)
        self._activity: Activity = "files"
        self._since: float | None = None
        self._device_until = 0.0
        self._device_is_led = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measures the leading thread, which runs the block, until the block ends."""
        self._activity, self._since = "files", time.monotonic()
        try:
            yield
        finally:
            self.lead("files")
            self._since = None

    def lead(self, activity: Activity) -> None:
        """Notes what the leading thread does or waits for from now on."""
        now = time.monotonic()
        if self._since is not None:
            self._led[self._activity] += now - self._since
            self._since = now
        self._activity = activity

    @contextlib.contextmanager
    def timing(self, stage: Stage) -> Iterator[None]:
        """Adds the time of the block to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._busy[stage] += time.monotonic() - started

    def timed(self, stage: Stage, items: Iterable[_Item]) -> Iterator[_Item]:
        """The same items; adds the time that making them takes to a stage."""
        iterator = iter(items)
        while True:
            with self.timing(stage):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def computed(self, times: tuple[float, float] | None) -> None:
        """Notes when the device began and ended a batch, by `time.monotonic`.

        Batches that are computed at the same time count once. They come in the order of their
        beginnings. None where the runtime does not know: the time of the leading thread counts.
        """
        if times is None:
            self._device_is_led = True
            return
        began, ended = times
        self._busy["device"] += max(0.0, ended - max(began, self._device_until))
        self._device_until = max(ended, self._device_until)

    def times(self) -> StageTimes:
        """The times so far; any thread may ask."""
        led = dict(self._led)
        busy = dict(self._busy)
        busy["assemble"] = led["assemble"]
        if self._device_is_led:
            busy["device"] += led["device"]
        busy["write"] += led["files"]
        return StageTimes(busy, led)
