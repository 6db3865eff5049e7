"""A new process up to its first feature, by parts; and whole commands up to their end."""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.processes import peak_of, run_module, say, spread

Times = dict[str, dict[str, float]]  # `seconds` and `cpu_seconds` of each part

_VECTORS = 10_000
_TEXTS = ("neighbors", "vectors.parquet")
# Commands, by what they do; the first is no command of ours.
_COMMANDS = {
    "python -c 'import tensorflow'": ("-c", "import tensorflow"),
    "extract of three lines": ("extract", "three.txt", "--output=three.npz", "--overwrite"),
    f"neighbors of a text among {_VECTORS:,}": (*_TEXTS, "--query=The bank of the river."),
    f"neighbors of one of {_VECTORS:,} texts": (*_TEXTS, "--query-id=17"),
}


def measure_start(rounds: int) -> dict[str, Any]:
    """Starts processes with an empty cache and with a filled one; returns medians of each part."""
    found: dict[str, list[Times]] = {"empty": [], "filled": []}
    for turn in range(rounds + 1):
        say(f"starting up: round {turn} of {rounds}")
        with tempfile.TemporaryDirectory() as cache:
            for results in found.values():
                times = json.loads(run_module("first_feature", BERT_FEATURES_CACHE=cache))
                if turn:  # the first round reads the files from disk
                    results.append(times)
    return {"rounds": rounds} | {state: _medians(results) for state, results in found.items()}


def measure_commands(rounds: int) -> dict[str, Any]:
    """Times whole commands, one after the other in each round; seconds by command."""
    program = [sys.executable, "-m", "bert_features"]
    found: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("three.txt").write_text("The bank.\nThe bank of the river.\nNo bank at all.\n")
        Path("many.txt").write_text("".join(f"This is line {n}.\n" for n in range(_VECTORS)))
        options = ["--output=vectors.parquet", "--level=sequence", "--layers=-1"]
        peak_of([*program, "extract", "many.txt", *options])
        for turn in range(rounds + 1):
            say(f"whole commands: round {turn} of {rounds}")
            for name, arguments in _COMMANDS.items():
                start = [sys.executable] if arguments[0] == "-c" else program
                seconds = peak_of([*start, *arguments])[1]
                if turn:  # the first round reads the files from disk
                    found[name].append(seconds)
    return {"rounds": rounds, "seconds": {name: spread(times) for name, times in found.items()}}


def _medians(results: list[Times]) -> Times:
    return {
        kind: {part: median(result[kind][part] for result in results) for part in parts}
        for kind, parts in results[0].items()
    }
