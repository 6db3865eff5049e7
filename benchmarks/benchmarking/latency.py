"""One short text, again and again: the time of each call."""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.jobs import RefusedError
from benchmarking.processes import BenchmarkError, Worker, run_module, say
from benchmarking.programs import PROGRAMS

STEP_ALONE = "the device step alone"
_TEXT = "After the bank vault, the river bank."
# Programs take turns, so that a busy minute of the machine concerns all of them.
_CALLS_PER_TURN = 10
# A turn begins with calls that bring its code and weights back into the caches.
_UNTIMED_CALLS = 2
# Allowed difference of float32 vectors.
_MAX_DIFFERENCE = 1e-4

Way = tuple[Worker, str]


def measure_latency(
    programs: Sequence[str], *, calls: int, models: Path, log: Path
) -> dict[str, Any]:
    """Times calls with one text; returns the values of the table.

    Args:
      programs: names of programs; those that cannot take one text at a time are left out.
      calls: number of timed calls of each way to call a program.
      models: folder of the converted models.
      log: file for the output of the programs.

    Raises:
      BenchmarkError: none of the programs can be timed, or their vectors differ.
    """
    names = [name for name in programs if PROGRAMS[name].calls]
    if not names:
        raise BenchmarkError(f"latency: none of {', '.join(programs)} takes one text at a time")
    run_module("models", models / "minilm", "minilm", "pooled")
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(name, log)) for name in names]
        differences = _compared(workers, models / "minilm")
        seconds: dict[Way, list[float]] = {way: [] for way in differences}
        while len(next(iter(seconds.values()))) < calls:
            for (worker, way), times in seconds.items():
                count = min(_CALLS_PER_TURN, calls - len(times))
                times += worker("run_calls", way=way, untimed=_UNTIMED_CALLS, count=count)[
                    "seconds"
                ]
        say(f"latency: timed {calls:,} calls of each program")
    rows = [
        {
            "program": worker.program,
            "way": way,
            "p50": float(np.percentile(times, 50)),
            "p99": float(np.percentile(times, 99)),
            "max_difference": differences[worker, way],
        }
        for (worker, way), times in seconds.items()
    ]
    return {"text": _TEXT, "calls": calls, "calls_per_turn": _CALLS_PER_TURN, "rows": rows}


def _compared(workers: Sequence[Worker], folder: Path) -> dict[Way, float]:
    """Each way to call a program, with the difference of its vector from the first one's."""
    differences = {}
    with tempfile.TemporaryDirectory() as work:
        expected = None
        for worker in workers:
            say(f"latency: loading {worker.program}")
            path = str(Path(work, f"{worker.program}.npz"))
            ways = worker("load_calls", folder=str(folder), text=_TEXT, save=path)["ways"]
            with np.load(path) as vectors:
                for way in ways:
                    expected = vectors[way] if expected is None else expected
                    difference = float(np.abs(vectors[way] - expected).max())
                    if not difference <= _MAX_DIFFERENCE:
                        raise RefusedError(
                            f"{worker.program}, {way}: its vector differs by {difference:.2g}; "
                            f"allowed: {_MAX_DIFFERENCE:g}"
                        )
                    differences[worker, way] = difference
    return differences
