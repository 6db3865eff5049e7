"""bert-features extract: writes the features of a file of examples to a file."""

import os
import signal
import sys
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
from bert_features.cli.progress import EXAMPLES, ProgressDisplay
from bert_features.cli.settings import takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import OutputError

STDOUT = "-"

if TYPE_CHECKING:
    from bert_features.extraction.counts import Counts
    from bert_features.extraction.job import ExtractSummary


@command
@takes_settings
def extract(
    input_path: InputArgument,
    # Not a Path, which takes ./- for -.
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="File to write; - writes JSON lines to standard output, without the metadata.",
        ),
    ],
    settings: ExtractConfig,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File that lists, as one JSON line for each example, its token counts and losses."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing output file and ledger.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Writes the hidden layers of tokens, words or texts to a file."""
    from bert_features.extraction.job import extract as run

    # A batch scheduler ends a job with SIGTERM, a closed terminal with SIGHUP (nohup ignores it).
    # Neither may leave a partial file behind.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, _interrupt)
    with ProgressDisplay(EXAMPLES) as display:

        def show(counts: "Counts", total: int | None) -> None:
            display.update(counts.examples, total, counts.tokens)

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
            left = "what was written is incomplete" if output == STDOUT else "nothing was written"
            raise OutputError(f"interrupted; {left}") from None
        except BrokenPipeError:
            if output != STDOUT:
                raise
            _end_quietly()
    print(_describe(summary), file=sys.stderr if output == STDOUT else sys.stdout)


def _end_quietly() -> NoReturn:
    """Ends a run whose reader has gone (`| head`), as a program that the system ends then."""
    # Python would complain when it flushes standard output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(128 + signal.SIGPIPE)


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
        "output": f"{summary.output or 'standard output'} ({describe_size(summary.bytes_written)})",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def _describe_rare(counts: "Counts") -> dict[str, str]:
    """Lines of the summary that only some runs need."""
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
