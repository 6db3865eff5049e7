"""bert-features extract: the job."""

import logging
import re
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from bert_features.cli.command import (
    CasingOption,
    CheckpointOption,
    DebugOption,
    EncodingErrorsOption,
    command,
)
from bert_features.errors import ConfigError, OutputError
from bert_features.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.config import ExtractConfig
    from bert_features.extraction import Counts, ExtractSummary

_LOG_EVERY_SECONDS = 10.0


@command
def extract(
    input_path: Annotated[
        str, typer.Argument(metavar="INPUT", help="Text, one example per line; - for stdin.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings; options here override it.")
    ] = None,
    checkpoint: CheckpointOption = None,
    config_file: Annotated[
        str | None, typer.Option(help="bert_config.json or config.json, if not beside the weights.")
    ] = None,
    vocab_file: Annotated[
        str | None, typer.Option("--vocab-file", "--vocab", help="vocab.txt, if elsewhere.")
    ] = None,
    do_lower_case: CasingOption = None,
    hidden_act: Annotated[
        Literal["gelu_erf", "gelu_tanh"] | None,
        typer.Option(help="The form of GELU. [default: that of the checkpoint's family]"),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="LAYERS, as in --layers=-1,-2: blocks -L to L-1, and the word embeddings. "
            "[default: -1,-2,-3,-4]"
        ),
    ] = None,
    combine: Annotated[
        Literal["none", "sum", "mean", "concat"] | None,
        typer.Option(help="How the layers become one vector. [default: none]"),
    ] = None,
    max_seq_length: Annotated[
        int | None, typer.Option(help="Tokens of the longest row. [default: 128]")
    ] = None,
    buckets: Annotated[
        str | None,
        typer.Option(help="Lengths rows are padded to. [default: 16,32,64,128,256,512]"),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a batch. [default: 32]")] = None,
    device: Annotated[
        Literal["auto", "tpu", "gpu", "cpu"] | None,
        typer.Option(help="Where to run: the best there is, or one kind. [default: auto]"),
    ] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"] | None,
        typer.Option(help="Of the arithmetic; auto is bfloat16 on a TPU. [default: auto]"),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"] | None,
        typer.Option(help="Of the features. [default: float32]"),
    ] = None,
    use_one_hot_embeddings: Annotated[
        bool | None,
        typer.Option(help="Look words up by a matrix product.", show_default=False),
    ] = None,
    output_format: Annotated[
        Literal["parquet", "jsonl", "npz", "hdf5", "tfrecord"] | None,
        typer.Option("--format", help="Of the output. [default: parquet]"),
    ] = None,
    encoding_errors: EncodingErrorsOption = None,
    buffer_mb: Annotated[
        int | None, typer.Option(help="Megabytes of features that may wait. [default: 256]")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    debug: DebugOption = False,
) -> None:
    """Writes the hidden layers of every token of INPUT to a file."""
    settings = {
        "checkpoint": checkpoint,
        "config_file": config_file,
        "vocab_file": vocab_file,
        "do_lower_case": do_lower_case,
        "hidden_act": hidden_act,
        "layers": None if layers is None else _entries("--layers", layers),
        "combine": combine,
        "max_seq_length": max_seq_length,
        "buckets": None if buckets is None else _entries("--buckets", buckets),
        "batch_size": batch_size,
        "device": device,
        "precision": precision,
        "dtype": dtype,
        "use_one_hot_embeddings": use_one_hot_embeddings,
        "format": output_format,
        "encoding_errors": encoding_errors,
        "buffer_mb": buffer_mb,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    _extract(_config(config, given), input_path, output, overwrite=overwrite)


def _config(path: Path | None, given: dict[str, Any]) -> "ExtractConfig":
    from bert_features.config import ExtractConfig

    return ExtractConfig.of(given) if path is None else ExtractConfig.load(path, **given)


def _entries(option: str, text: str) -> list[int | str]:
    """`-1,-2,embeddings` as a list; what is not a number stays a word, for the config to judge."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option} is {text!r}; separate the entries by single commas")
    return [int(word) if re.fullmatch(r"[+-]?\d+", word) else word for word in words]


def _extract(config: "ExtractConfig", input_path: str, output: Path, *, overwrite: bool) -> None:
    import_tensorflow()
    from bert_features.extraction import extract as run

    # A batch scheduler ends a job by SIGTERM, a closed terminal by SIGHUP (which nohup ignores);
    # they must leave no half-written file either.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, _interrupt)
    with _progress() as show:
        try:
            summary = run(config, input_path, output, overwrite=overwrite, progress=show)
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
        "pad waste": f"{counts.pad_waste:.1%} of computed tokens",
        "speed": f"{summary.tokens_per_second:,.0f} tokens/s over {summary.seconds:.1f} s",
        "output": f"{summary.output} ({_size(summary.bytes_written)})",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.2f} GB"


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
