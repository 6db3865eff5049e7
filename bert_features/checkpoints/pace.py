"""A least speed and a longest time of a download, so that no server can hold it without end."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Clock = Callable[[], float]


class TooSlowError(Exception):
    """Fewer bytes came than the least speed asks for."""


class TooLongError(Exception):
    """The whole download takes longer than it may."""


@dataclass(frozen=True)
class PaceLimits:
    """How slow a download may be.

    Attributes:
      least_speed: bytes per second, on average over a window. At 10 kB/s BERT-Base (440 MB) takes
        12 hours.
      window: seconds over which the speed is measured, so that a pause does no harm.
      longest: seconds that a whole download may take, in all attempts. What has come of a larger
        checkpoint is kept for the next run.
    """

    least_speed: float = 10_000.0
    window: float = 60.0
    longest: float = 24 * 3600.0


DEFAULT_LIMITS = PaceLimits()


class Pace:
    """Counts the bytes of one download.

    Args:
      limits: how slow it may be.
      clock: gives seconds.
    """

    def __init__(self, limits: PaceLimits, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._began = clock()
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Begins a window: the time between attempts does not count for the speed."""
        self._window_began = self._clock()
        self._came = 0

    def add(self, count: int) -> None:
        """Counts bytes that came.

        Raises:
          TooSlowError: the window is over, and too few bytes came in it.
          TooLongError: the download takes too long.
        """
        now = self._clock()
        if now - self._began > self._limits.longest:
            hours = self._limits.longest / 3600
            raise TooLongError(f"the download took more than {hours:g} hours")
        self._came += count
        elapsed = now - self._window_began
        if elapsed < self._limits.window:
            return
        speed = self._came / max(elapsed, 1e-9)
        if speed < self._limits.least_speed:
            raise TooSlowError(
                f"the server sent {speed:,.0f} bytes per second for {elapsed:.0f} seconds; "
                f"at least {self._limits.least_speed:,.0f} are expected"
            )
        self._window_began, self._came = now, 0


class PacedReader:
    """The body of an answer, read for a library that reads it as a file.

    Args:
      response: has `read1`, as the answers of `urllib.request`.
      pace: counts what comes.
    """

    def __init__(self, response: Any, pace: Pace) -> None:
        self._response = response
        self._pace = pace

    def read(self, size: int = -1) -> bytes:
        """That many bytes, fewer at the end; all of them by default.

        Raises:
          TooSlowError, TooLongError: see `Pace.add`.
        """
        blocks = []
        missing = size
        # By read1, which gives what has come: read waits for all, however slowly it comes.
        while missing and (block := self._response.read1(missing)):
            self._pace.add(len(block))
            blocks.append(block)
            missing -= len(block) if size > 0 else 0
        return b"".join(blocks)

    def close(self) -> None:
        """Ends the connection."""
        self._response.close()
