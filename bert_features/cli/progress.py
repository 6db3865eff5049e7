"""The progress display of a run: a bar on a terminal, log lines elsewhere.

Both go to standard error, so that standard output holds results alone.
"""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


def describe_seconds(seconds: float) -> str:
    """A time in its largest units, as `40 s`, `12 min` or `1 h 20 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class ProgressDisplay:
    """Shows how far a job is, while it is entered as a context; `state` is the latest state."""

    def __init__(self) -> None:
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

    def update(self, examples: int, total: int | None, tokens: int) -> None:
        """Shows a new state; `total` is None if unknown, the speed is that of the tokens."""
        self.state = state = self._pace.note(examples, total, tokens)
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=examples,
                total=total,
                amount=_describe(state, "/"),
                rate=_describe_rate(state),
            )
        else:
            self._log(state)

    def _log(self, state: State) -> None:
        if time.monotonic() - self._last_line < _LOG_SECONDS:
            return
        self._last_line = time.monotonic()
        rate, seconds = state.rate, state.seconds_left
        left = "" if seconds is None else f", {describe_seconds(seconds)} left"
        share = f" ({state.done / state.total:.0%}{left})" if state.total else ""
        fields = {
            "tokens": state.work,
            "examples": state.done,
            "total": state.total,
            "tokens_per_second": None if rate is None else round(rate, 1),
            "seconds_left": None if seconds is None else round(seconds, 1),
        }
        amount, speed = _describe(state, " of "), _describe_rate(state)
        logger.info("%s%s, %s", amount, share, speed, extra=log_fields(**fields))


def _describe(state: State, between: str) -> str:
    """The amount done, as `12 of 100 examples` with ` of ` in between."""
    numbers = [state.done] if state.total is None else [state.done, state.total]
    return f"{between.join(f'{number:,.0f}' for number in numbers)} examples"


def _describe_rate(state: State) -> str:
    return "…" if state.rate is None else f"{state.rate:,.0f} tokens/s"


@contextlib.contextmanager
def reporting() -> Iterator["Report"]:
    """Shows how far a run is: on the terminal or in the log.

    Gives what the run calls with its counts and the number of examples to do, None if unknown.
    """
    with ProgressDisplay() as display:

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
