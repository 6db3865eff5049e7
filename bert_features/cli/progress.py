"""The progress display of every command: a bar on a terminal, log lines elsewhere.

Both go to standard error, so that standard output holds results alone.
"""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bert_features.cli.logs import is_json, log_fields
from bert_features.monitor import interruption
from bert_features.monitor.run import Pace, State

if TYPE_CHECKING:
    from rich.progress import Progress

    from bert_features.extraction.counts import Counts

    Report = Callable[[Counts, int | None], None]

logger = logging.getLogger("bert_features")

_LOG_SECONDS = 10.0  # least time between two log lines


@dataclass(frozen=True)
class Measure:
    """How a command counts its progress.

    Attributes:
      unit: what is counted, as shown.
      rate_unit: what the speed counts, as shown, each second.
      scale: the number of counted things in one shown unit.
      name: the name of what is counted, in a JSON log line.
      rate_name: the name of what the speed counts there.
      logs_end: whether the last log line says that the whole is done; for commands that print no
        summary of their own.
    """

    unit: str
    rate_unit: str
    scale: float = 1
    decimals: int = 0
    name: str = "examples"
    rate_name: str = "tokens"
    logs_end: bool = False

    def describe(self, state: State, between: str) -> str:
        """The amount done, as `12 of 100 examples` with ` of ` in between."""
        numbers = [state.done] if state.total is None else [state.done, state.total]
        return f"{between.join(map(self._number, numbers))} {self.unit}"

    def describe_rate(self, state: State) -> str:
        """A speed in shown units; an ellipsis while it is unknown."""
        return "…" if state.rate is None else f"{self._number(state.rate)} {self.rate_unit}"

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
    "MB", "MB/s", scale=1e6, decimals=1, logs_end=True, name="bytes", rate_name="bytes"
)


class ProgressDisplay:
    """Shows how far a job is, while it is entered as a context; `state` is the latest state."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._bar = _make_bar() if sys.stderr.isatty() and not is_json() else None
        self._last_line = time.monotonic()
        self._pace, self.state = Pace(), State()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int | None, work: int | None = None) -> None:
        """Shows a new state; `total` is None if unknown, `work` what the speed is measured by."""
        self.state = state = self._pace.note(done, total, done if work is None else work)
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=done,
                total=total,
                amount=self._measure.describe(state, "/"),
                rate=self._measure.describe_rate(state),
            )
        else:
            self._log(state)

    def _log(self, state: State) -> None:
        measure, rate, seconds = self._measure, state.rate, state.seconds_left
        amount = measure.describe(state, " of ")
        if state.done == state.total and measure.logs_end:
            logger.info("%s", amount)
        elif time.monotonic() - self._last_line >= _LOG_SECONDS:
            self._last_line = time.monotonic()
            left = "" if seconds is None else f", {describe_seconds(seconds)} left"
            share = f" ({state.done / state.total:.0%}{left})" if state.total else ""
            fields = {
                measure.rate_name: state.work,
                measure.name: state.done,
                "total": state.total,
                f"{measure.rate_name}_per_second": None if rate is None else round(rate, 1),
                "seconds_left": None if seconds is None else round(seconds, 1),
            }
            speed = measure.describe_rate(state)
            logger.info("%s%s, %s", amount, share, speed, extra=log_fields(**fields))


@contextlib.contextmanager
def reporting() -> Iterator["Report"]:
    """Shows how far a run is: on the terminal or in the log.

    Gives what the run calls with its counts and the number of examples to do, None if unknown.
    """
    with ProgressDisplay(EXAMPLES) as display:

        def report(counts: "Counts", total: int | None) -> None:
            interruption.raise_if_interrupted()
            display.update(counts.examples, total, counts.tokens)

        yield report


class Heartbeat:
    """Logs a line now and then while steps without progress of their own run, as compiling does.

    A line begins with `doing`.
    """

    def __init__(self, doing: str) -> None:
        self.doing = doing
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
        while not self._done.wait(_LOG_SECONDS):
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
