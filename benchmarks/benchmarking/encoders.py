"""The encoder alone: equal shapes, no tokenizing, no padding, the same random weights for all."""

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.models import ARCHITECTURES
from benchmarking.processes import Idling, Worker, run_module, say, spread
from benchmarking.programs import PROGRAMS, REFERENCE

# Architecture -> shapes of batches, (rows, length).
SHAPES = {
    "random-minilm": ((256, 24), (85, 24), (32, 128)),
    "random-bert-base": ((32, 128),),
}
QUICK_SHAPES = {"random-minilm": ((85, 24),)}
# Allowed difference in the last layer, whose values are about 1.
_MAX_DIFFERENCE = 1e-4
_RUN_SECONDS = 1.5
_MIN_BATCHES = 4  # a multiple of the batches that some programs run side by side


def run_encoders(
    programs: Sequence[str], *, rounds: int, models: Path, log: Path, quick: bool
) -> list[dict[str, Any]]:
    """Times the encoders; returns the values of one table for each shape."""
    wanted = [name for name in programs if PROGRAMS[name].encoder]
    runtimes = sorted({g for name in wanted if (g := PROGRAMS[name].graphs)})
    tables = []
    for architecture, shapes in (QUICK_SHAPES if quick else SHAPES).items():
        say(f"{architecture}: writing the model in every form")
        folder = models / architecture
        run_module("models", folder, architecture, "hidden", *runtimes)
        tables += _compare_programs(architecture, shapes, wanted, folder, rounds, log)
    return tables


def _compare_programs(
    architecture: str,
    shapes: Sequence[tuple[int, int]],
    programs: Sequence[str],
    folder: Path,
    rounds: int,
    log: Path,
) -> list[dict[str, Any]]:
    # The reference goes first, even if it is not timed.
    names = [REFERENCE, *(name for name in programs if name != REFERENCE)]
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(name, log)) for name in names}
        for name, worker in workers.items():
            say(f"{architecture}: loading {name}")
            worker("load_encoders", folder=str(folder), settings=PROGRAMS[name].encoder_settings())
        return [_time_shape(architecture, shape, workers, programs, rounds) for shape in shapes]


def _time_shape(
    architecture: str,
    shape: tuple[int, int],
    workers: Mapping[str, Worker],
    programs: Sequence[str],
    rounds: int,
) -> dict[str, Any]:
    plans, compared = _warm_up(shape, workers)
    idling = Idling(workers.values())
    names = [name for name in programs if _is_right(name, compared[name])]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        say(f"{architecture} {shape[0]} x {shape[1]}: round {turn + 1} of {rounds}")
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            done = idling.run(workers[name], "run_encoder", **plans[name])
            rates[name].append(done["tokens"] / done["seconds"])
    flops = ARCHITECTURES[architecture].flops_per_token(shape[1])
    return {
        "architecture": architecture,
        "rows": shape[0],
        "length": shape[1],
        "rounds": rounds,
        "refused": {
            name: f"differs by {compared[name]['max_difference']:.2g}"
            for name in programs
            if name not in rates
        },
        "idle_cores": idling.worst,
        "programs": [
            {
                "program": name,
                "settings": PROGRAMS[name].encoder_settings()[plans[name]["choice"]],
                "tokens_per_second": spread(values),
                "gflops": spread(values)["median"] * flops / 1e9,
                **compared[name],
            }
            for name, values in rates.items()
        ],
    }


def _warm_up(
    shape: tuple[int, int], workers: Mapping[str, Worker]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]]]:
    """The fastest settings of each program with a long enough run; how far its outputs differ."""
    plans, compared = {}, {}
    size = {"rows": shape[0], "length": shape[1]}
    with tempfile.TemporaryDirectory() as work:
        outputs: dict[str, np.ndarray] = {}
        for name, worker in workers.items():
            path = str(Path(work, "hidden.npy"))
            tried = []
            for choice in range(len(PROGRAMS[name].encoder_settings())):
                worker("run_encoder", choice=choice, count=2, save=path, **size)
                done = worker("run_encoder", choice=choice, count=_MIN_BATCHES, **size)
                tried.append(done["seconds"] / _MIN_BATCHES)
            outputs[name] = np.load(path)
            compared[name] = _difference(outputs[name], outputs[REFERENCE])
            count = max(_MIN_BATCHES, round(_RUN_SECONDS / min(tried)))
            plans[name] = {"choice": int(np.argmin(tried)), "count": count, **size}
    return plans, compared


def _difference(hidden: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    cosines = (hidden * expected).sum(-1) / (
        np.linalg.norm(hidden, axis=-1) * np.linalg.norm(expected, axis=-1)
    )
    return {
        "max_difference": float(np.abs(hidden - expected).max()),
        "min_cosine": float(cosines.min()),
        "mean_cosine": float(cosines.mean()),
    }


def _is_right(name: str, compared: Mapping[str, float]) -> bool:
    exact = PROGRAMS[name].precision == "float32"
    right = not exact or compared["max_difference"] <= _MAX_DIFFERENCE
    if not right:
        say(f"{name} is refused: its last layer differs by {compared['max_difference']:.2g}")
    return right


def roofline(rounds: int) -> dict[str, float]:
    """GFLOP/s of a float32 matrix product by NumPy's BLAS, 4096 x 768 x 3072."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4096, 768), np.float32)
    b = rng.standard_normal((768, 3072), np.float32)
    rates = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        for _ in range(5):
            a @ b
        rates.append(5 * 2.0 * 4096 * 768 * 3072 / (time.perf_counter() - started) / 1e9)
    return dict(spread(rates[1:]))
