"""The progress display of every command: a bar on a terminal, log lines elsewhere.

Both go to standard error, so that standard output holds results alone.
"""

import logging
import sys
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from bert_features.cli.logs import is_json, log_fields

if TYPE_CHECKING:
    from rich.progress import Progress

logger = logging.getLogger("bert_features")


@dataclass(frozen=True)
class Measure:
    """How a command counts its progress.

    Attributes:
      unit: what is counted, as shown.
      rate_unit: what the speed counts, as shown, each second.
      scale: the number of counted things in one shown unit.
      decimals: digits after the decimal point.
      log_seconds: least time between two log lines.
      name: the name of what is counted, in a JSON log line.
      rate_name: the name of what the speed counts there.
      logs_end: whether the last log line says that the whole is done; for commands that print no
        summary of their own.
    """

    unit: str
    rate_unit: str
    scale: float = 1
    decimals: int = 0
    log_seconds: float = 10.0
    name: str = "examples"
    rate_name: str = "tokens"
    logs_end: bool = False

    def describe(self, done: int, total: int | None, between: str) -> str:
        """The amount done, as `12 of 100 examples` with ` of ` in between."""
        numbers = [done] if total is None else [done, total]
        return f"{between.join(map(self._number, numbers))} {self.unit}"

    def describe_left(self, done: int, total: int | None, seconds: float | None) -> str:
        """The share done and the time left, as ` (12%, 3 min left)`; empty if unknown."""
        if not total:
            return ""
        left = "" if seconds is None else f", {describe_seconds(seconds)} left"
        return f" ({done / total:.0%}{left})"

    def describe_rate(self, rate: float | None) -> str:
        """A speed in shown units; an ellipsis while it is unknown."""
        return "…" if rate is None else f"{self._number(rate)} {self.rate_unit}"

    def fields(self, state: "_State") -> dict[str, float | None]:
        """The numbers of a progress line by name, unscaled; None for what is unknown."""
        done, total, work, rate, seconds = state
        return {
            self.rate_name: work,
            self.name: done,
            "total": total,
            f"{self.rate_name}_per_second": None if rate is None else round(rate, 1),
            "seconds_left": None if seconds is None else round(seconds, 1),
        }

    def _number(self, count: float) -> str:
        return f"{count / self.scale:,.{self.decimals}f}"


def describe_seconds(seconds: float) -> str:
    """A time in its largest units, as `40 s`, `12 min` or `1 h 20 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


EXAMPLES = Measure("examples", "tokens/s")
MEGABYTES = Measure(
    "MB",
    "MB/s",
    scale=1e6,
    decimals=1,
    log_seconds=5.0,
    logs_end=True,
    name="bytes",
    rate_name="bytes",
)


class _State(NamedTuple):
    """How far a job is.

    Attributes:
      done: the number of things done.
      total: the number of things to do; None if unknown.
      work: what the speed is measured by.
      rate: `work` per second; None if unknown.
      seconds: seconds left; None if unknown.
    """

    done: int
    total: int | None
    work: int
    rate: float | None
    seconds: float | None


class ProgressDisplay:
    """Shows how far a job is, while it is entered as a context.

    Args:
      measure: how the job counts.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._bar = _make_bar() if sys.stderr.isatty() and not is_json() else None
        self._last_line = time.monotonic()
        self._first: tuple[float, int, int] | None = None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int | None, work: int | None = None) -> None:
        """Shows a new state.

        Args:
          done: the number of things done.
          total: the number of things to do; None if unknown.
          work: what the speed is measured by, if not by `done`.
        """
        work = done if work is None else work
        rate, seconds = self._measured(done, total, work)
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=done,
                total=total,
                amount=self._measure.describe(done, total, "/"),
                rate=self._measure.describe_rate(rate),
            )
        else:
            self._log(_State(done, total, work, rate, seconds))

    def _log(self, state: _State) -> None:
        done, total, _, rate, seconds = state
        amount = self._measure.describe(done, total, " of ")
        if done == total and self._measure.logs_end:
            logger.info("%s", amount)
        elif time.monotonic() - self._last_line >= self._measure.log_seconds:
            self._last_line = time.monotonic()
            left = self._measure.describe_left(done, total, seconds)
            fields = self._measure.fields(state)
            speed = self._measure.describe_rate(rate)
            logger.info("%s%s, %s", amount, left, speed, extra=log_fields(**fields))

    def _measured(
        self, done: int, total: int | None, work: int
    ) -> tuple[float | None, float | None]:
        """Work per second and seconds left, by what came after the first update.

        Compiling and connecting come before it.
        """
        now = time.monotonic()
        if self._first is None:
            self._first = now, done, work
        started, done_before, work_before = self._first
        seconds = now - started
        rate = (work - work_before) / seconds if work > work_before and seconds else None
        if total is None or done <= done_before:
            return rate, None
        return rate, (total - done) * seconds / (done - done_before)


class Heartbeat:
    """Logs a line now and then while steps without progress of their own run, as compiling does.

    Attributes:
      doing: what is being done; a line begins with it.

    Args:
      doing: what is done first.
      log_seconds: time between two lines.
    """

    def __init__(self, doing: str, *, log_seconds: float = 10.0) -> None:
        self.doing = doing
        self._log_seconds = log_seconds
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._log_seconds):
            seconds = round(time.monotonic() - self._started)
            logger.info("%s (%s s so far)", self.doing, f"{seconds:,}")


def _make_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.fields[amount]}"),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("", total=None, amount="", rate="…")
    return bar
