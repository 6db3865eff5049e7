"""The figures that this project promises: start-up, layers, writing, memory."""

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.corpora import drawn_texts
from benchmarking.processes import Worker, peak_of, run, run_module, say
from benchmarking.programs import PROJECT

_HELP_SECONDS = 0.4
_START_SECONDS = 3.0
_LAYERS_RATIO = 0.78
_WRITING_SHARE = 0.10
_MEMORY_BYTES = 200e6
_FEW_LINES, _MANY_LINES = 50_000, 1_000_000

_FIRST_FEATURE = """
from bert_features import FeatureExtractor
FeatureExtractor.from_checkpoint("minilm")(["After the bank vault, the river bank."])
"""

Row = dict[str, Any]


def measure_targets(
    lines: Sequence[str], *, rounds: int, models: Path, log: Path, quick: bool
) -> list[Row]:
    """Measures each target; returns rows that say whether it is met."""
    return [
        *_starts(rounds),
        _layers(rounds, models, log),
        _writing(lines[:256] if quick else lines, rounds),
    ]


def _command() -> str:
    """The path of bert-features in this environment."""
    return str(Path(sys.executable).with_name("bert-features"))


def _starts(rounds: int) -> list[Row]:
    say("starting up")
    commands = {
        "help": [_command(), "--help"],
        "import": [sys.executable, "-c", "import tensorflow"],
        "feature": [sys.executable, "-c", _FIRST_FEATURE],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            took = _timed(functools.partial(run, command))
            if turn:  # the first run reads the files from disk
                seconds[name].append(took)
    shown, imported, feature = (median(seconds[name]) for name in commands)
    return [
        _row("`bert-features --help`", f"{shown:.2f} s", "0.4 s", shown < _HELP_SECONDS),
        _row(
            "first feature in a new process",
            f"{feature:.2f} s: TensorFlow's import {imported:.2f} s + {feature - imported:.2f} s",
            "import + 3 s",
            feature - imported <= _START_SECONDS,
        ),
    ]


def _layers(rounds: int, models: Path, log: Path) -> Row:
    say("layers up to -4 of 12, and all")
    folder = models / "random-bert-base"
    run_module("models", folder, "random-bert-base", "hidden")
    choices = [{"precision": "float32", "layer": layer} for layer in (-1, -4)]
    shape = {"rows": 32, "length": 128, "count": 4}
    seconds: list[list[float]] = [[], []]
    with Worker(PROJECT, log) as worker:
        worker("load_encoders", folder=str(folder), settings=choices)
        for turn in range(rounds + 1):
            for choice in range(2):
                took = worker("run_encoder", choice=choice, **shape)["seconds"]
                if turn:  # the first run traces
                    seconds[choice].append(took)
    ratio = median(seconds[1]) / median(seconds[0])
    return _row(
        "time of layers up to -4 / all 12 layers, BERT-base, 32 x 128",
        f"{ratio:.3f}",
        f"{_LAYERS_RATIO}",
        ratio <= _LAYERS_RATIO,
    )


def _writing(lines: Sequence[str], rounds: int) -> Row:
    say("writing four layers in float16")
    with tempfile.TemporaryDirectory() as work:
        texts = Path(work, "texts.txt")
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        thrown, written, inside = map(
            float, run_module("writing", texts, work, str(rounds)).split()
        )
    share = max(inside / written, 1 - thrown / written)
    return _row(
        "writing and conversion, four layers of tokens, float16, parquet",
        f"{share:.1%}: {inside:.2f} s in the writer; the job takes {written:.2f} s, or "
        f"{thrown:.2f} s without writing",
        "under 10 %",
        share < _WRITING_SHARE,
    )


def measure_memory(lines: Sequence[str], *, models: Path, quick: bool) -> list[Row]:
    """Measures the peak memory of two runs of the command, with a small encoder to save time."""
    counts = (500, 5_000) if quick else (_FEW_LINES, _MANY_LINES)
    folder = models / "random-tiny"
    run_module("models", folder, "random-tiny", "hidden")
    peaks = []
    with tempfile.TemporaryDirectory() as work:
        for count in counts:
            say(f"extracting features of {count:,} lines")
            texts = Path(work, "texts.txt")
            with texts.open("w", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in drawn_texts(lines, count, 15))
            output = Path(work, "features.parquet")
            arguments: list[str | Path] = [
                "--checkpoint",
                folder,
                "--layers=-1",
                "--dtype=float16",
                "--uncased",
            ]
            peak, seconds = peak_of(
                [_command(), "extract", texts, "--output", output, *arguments, "--overwrite"]
            )
            say(f"{peak / 1e6:,.0f} MB, {seconds:.0f} s")
            peaks.append(peak)
    return [
        _row(
            f"peak for {counts[0]:,} and {counts[1]:,} lines",
            f"{peaks[0] / 1e6:,.0f} and {peaks[1] / 1e6:,.0f} MB",
            "within 200 MB",
            peaks[1] - peaks[0] <= _MEMORY_BYTES,
        )
    ]


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _row(what: str, measured: str, wanted: str, met: bool) -> Row:
    return {"what": what, "measured": measured, "wanted": wanted, "met": met}
