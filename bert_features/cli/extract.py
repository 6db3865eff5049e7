"""bert-features extract: the job."""

import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bert_features.cli.command import (
    DebugOption,
    InputArgument,
    command,
    describe_size,
)
from bert_features.cli.settings import takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import OutputError
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.extraction.counts import Counts
    from bert_features.extraction.job import ExtractSummary

_LOG_EVERY_SECONDS = 10.0


@command
@takes_settings
def extract(
    input_path: InputArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    settings: ExtractConfig,
    ledger: Annotated[
        Path | None,
        typer.Option(help="A file for what became of each example, one JSON line each."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output, and the ledger.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Writes the hidden layers of every token, word or text of INPUT to a file."""
    import_tensorflow(settings.runtime, settings.device)
    from bert_features.extraction.job import extract as run

    # A batch scheduler ends a job by SIGTERM, a closed terminal by SIGHUP (which nohup ignores);
    # they must leave no half-written file either.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, _interrupt)
    with _progress() as show:
        try:
            summary = run(
                settings,
                input_path,
                output,
                ledger_path=ledger,
                overwrite=overwrite,
                progress=show,
            )
        except KeyboardInterrupt:
            raise OutputError("interrupted; nothing was written") from None
    print(_describe(summary))


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _describe(summary: "ExtractSummary") -> str:
    counts = summary.counts
    rows = {
        "examples": f"{counts.examples:,}",
        "tokens": f"{counts.tokens:,}",
        "truncated": f"{counts.truncated_examples:,} examples, {counts.tokens_lost:,} tokens lost",
        **_describe_rare(counts),
        "pad waste": f"{counts.pad_waste:.1%} of computed tokens",
        "speed": f"{summary.tokens_per_second:,.0f} tokens/s over {summary.seconds:.1f} s",
        "output": f"{summary.output} ({describe_size(summary.bytes_written)})",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def _describe_rare(counts: "Counts") -> dict[str, str]:
    """Lines that only some runs have."""
    rows = {}
    if counts.rows > counts.examples:
        rows["windows"] = f"{counts.rows:,} rows of the {counts.examples:,} examples"
    if counts.words:
        rows["words"] = f"{counts.words:,}"
    if counts.words_vanished or counts.words_lost:
        rows["zero"] = (
            f"{counts.words_vanished:,} words vanished in cleaning, {counts.words_lost:,} were cut "
            "off; their vectors are zero"
        )
    return rows


class _Speed:
    """Tokens per second since the first step, whose compilation is not part of it."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def __call__(self, counts: "Counts") -> str:
        now = time.monotonic()
        self._first = self._first or (now, counts.tokens)
        seconds, tokens = now - self._first[0], counts.tokens - self._first[1]
        return f"{tokens / seconds:,.0f} tokens/s" if tokens else "…"


class _LogLines:
    """Progress as plain lines, now and then: for logs."""

    def __init__(self) -> None:
        self._speed = _Speed()
        self._last = time.monotonic()

    def __enter__(self) -> "_LogLines":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __call__(self, counts: "Counts", total: int | None) -> None:
        speed = self._speed(counts)
        if time.monotonic() - self._last < _LOG_EVERY_SECONDS:
            return
        self._last = time.monotonic()
        of_total = f" of {total:,}" if total else ""
        logging.getLogger("bert_features").info(
            "%s%s examples, %s", f"{counts.examples:,}", of_total, speed
        )


class _ProgressBar:
    """Progress as a bar with tokens/s and the time left: for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("examples"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("extract", total=None, speed="…")
        self._speed = _Speed()

    def __enter__(self) -> "_ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, counts: "Counts", total: int | None) -> None:
        self._bar.update(
            self._task, completed=counts.examples, total=total, speed=self._speed(counts)
        )


def _progress() -> _LogLines | _ProgressBar:
    return _ProgressBar() if sys.stderr.isatty() else _LogLines()
