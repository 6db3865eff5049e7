"""How fast the host is when the device costs nothing: reading, tokenizing, batching, writing.

    .venv/bin/python benchmarks/host.py TEXTS FOLDER [--megabytes 400] [--rounds 3] [--device 1.95]

The device step is replaced by arrays of zeros that were made beforehand, in batches as for one TPU
chip. Everything else is what `extract` runs. The rows are made of the words of TEXTS, and have 5,
20, 100 or 500 tokens. The features are float16 of width 768: two layers of all-MiniLM-L6-v2 (not
Google's BERT) side by side. Files are written to FOLDER and removed; with a folder in memory, such
as /dev/shm, no disk is measured.

The table of stages runs the first stage alone, then the first two, and so on; each line has what a
stage adds in CPU seconds per million tokens, and the tokens/s of all stages up to it. "convert" is
all of writing but the calls of the kernel, which a thread of their own makes; .npz and .h5 have no
such thread, and no such line. The table of formats has the whole job. Medians of interleaved runs.

`--model` measures the stages on one core and predicts speeds from them: no faster than all cores
together, nor than the slowest of the threads, each of which runs its stages alone. It compares the
prediction with the whole job on one core and on two, and prints what more cores would make.

`--device` imitates a device that computes so many M tokens/s, one batch after the other; the table
then says which share of the time it has nothing to do.
"""

import argparse
import functools
import gc
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from bert_features import ExtractConfig, FeatureExtractor, read_examples
from bert_features.config.features import OutputSpec
from bert_features.config.packing import MAX_PACKED_TEXTS, TEXT_NUMBERS
from bert_features.extraction.writing import write_behind
from bert_features.files.staging import _SteadyFile
from bert_features.formats import FORMATS, open_writer
from bert_features.machine.hardware import core_numbers, cores
from bert_features.runtime.base import CompiledStep, Devices, Runtime, Started

LENGTHS = (5, 20, 100, 500)
LEVELS = ("sequence", "word", "token")
FAST = ("arrow", "parquet", "hdf5", "npz")  # the others write a record at a time
BEHIND = ("arrow", "parquet", "jsonl", "tfrecord")  # a thread writes the file
STAGES = ("read", "tokenize and lay out", "batch", "assemble", "convert", "write")
_SEED = 20
# The stages that a thread of its own runs.
LANES = (("read", "tokenize and lay out"), ("batch",), ("assemble",), ("convert",), ("write",))
_CORES = core_numbers()
# Chips, the cores of their host, and M token vectors a second at half of their peak (BERT-base).
HOSTS = (("v5e-1", 24, 0.56), ("v5e-8", 224, 4.5))


@dataclass(frozen=True)
class NullDevices(Devices):
    """One chip that computes nothing."""

    def describe(self) -> str:
        """One line for the log."""
        return "no device: zeros instead of features"


class NullRuntime(Runtime):
    """A runtime whose step gives zeros, at once or when the imitated device has the time."""

    name = "tensorflow"
    devices = NullDevices("tpu", 1)

    def __init__(self, rate: float = math.inf) -> None:
        self.outputs: tuple[OutputSpec, ...] = ()
        self.rate = rate  # tokens a second, padding included
        self.busy = 0.0  # seconds so far

    def compile(self, step: Any, weights: Any, **arrangement: Any) -> CompiledStep:
        """The step; `outputs` must be set before its first call."""
        del step, weights, arrangement
        return NullStep(self)

    def bfloat16_slowdown(self) -> float:
        """Not measured."""
        return 1.0


class NullStep(CompiledStep):
    """Gives the same zeros for every batch of a shape."""

    def __init__(self, runtime: NullRuntime) -> None:
        self._runtime = runtime
        self._zeros: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
        self._free = 0.0  # when the device ends its last batch, by time.monotonic

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        """Starts a batch."""
        rows, length = batch["input_mask"].shape
        vectors = (rows, MAX_PACKED_TEXTS) if TEXT_NUMBERS in batch else (rows,)
        outputs = {
            output.name: self._array(
                output, vectors if output.level == "sequence" else (rows, length)
            )
            for output in self._runtime.outputs
        }
        seconds = rows * length / self._runtime.rate
        self._runtime.busy += seconds
        ended = self._free = max(self._free, time.monotonic()) + seconds

        def wait() -> dict[str, np.ndarray]:
            time.sleep(max(0.0, ended - time.monotonic()))
            return outputs

        return Started(wait, lambda: time.monotonic() >= ended)

    def _array(self, output: OutputSpec, rows: tuple[int, ...]) -> np.ndarray:
        shape = (*rows, output.width)
        key = (output.dtype, shape)
        if key not in self._zeros:
            self._zeros[key] = np.full(shape, 0, output.dtype)  # unlike zeros(), in memory at once
        return self._zeros[key]


def make_extractor(level: str, runtime: NullRuntime, *, packing: bool) -> FeatureExtractor:
    """An extractor of one output of width 768 whose device step computes nothing."""
    config = ExtractConfig.of(
        {
            "layers": [-1, -2],
            "combine": "concat",
            "dtype": "float16",
            "max_seq_length": 512,
            "precision": "float32",
            "level": level,
            "packing": packing,
        }
    )
    extractor = FeatureExtractor(config, runtime=runtime)
    runtime.outputs = extractor.outputs
    return extractor


def write_texts(path: Path, words: list[str], tokens: int, length: int) -> None:
    """Writes lines of `length - 2` words, each of which is one token."""
    rng = random.Random(_SEED)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(tokens // length):
            file.write(" ".join(rng.choices(words, k=length - 2)) + "\n")


def words_of_one_token(texts: Path, extractor: FeatureExtractor) -> list[str]:
    """The words of some texts that are in the vocabulary, as often as they occur."""
    words = texts.read_text(encoding="utf-8").split()
    known = set(extractor.tokenizer.tokens)
    return [word for word in words if word.isalpha() and word.isascii() and word.lower() in known]


def run_stage(
    stage: str, extractor: FeatureExtractor, texts: Path, output: Path, format: str
) -> None:
    """Runs the stages up to this one."""
    input_fn = extractor.preparation.input_fn(lambda: read_examples(texts))
    runs: dict[str, Callable[[], Any]] = {
        "read": lambda: _exhaust(read_examples(texts)),
        "tokenize and lay out": lambda: _exhaust(input_fn.chunks()),
        "batch": lambda: _exhaust(input_fn.stream(extractor.preparation.batch_params())),
        "assemble": lambda: _exhaust(extractor.batches(lambda: read_examples(texts))),
        "convert": lambda: _convert(extractor, texts, output, format),
        "write": lambda: _write(extractor, texts, output, format),
    }
    runs[stage]()


def _exhaust(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def _write(extractor: FeatureExtractor, texts: Path, output: Path, format: str) -> None:
    with open_writer(
        output, format=format, features=extractor.features(), metadata=extractor.metadata()
    ) as writer:
        batches = extractor.batches(lambda: read_examples(texts))
        write_behind(batches, writer.write, max_bytes=extractor.config.buffer_mb << 20)


def _convert(extractor: FeatureExtractor, texts: Path, output: Path, format: str) -> None:
    """Does all but to write."""
    with mock.patch.object(_SteadyFile, "write", lambda _, data: memoryview(data).nbytes):
        _write(extractor, texts, output, format)


def measure(
    runs: Mapping[Any, Callable[[], None]], output: Path, rounds: int
) -> dict[Any, tuple[float, float]]:
    """Medians of elapsed seconds and CPU seconds of each run, in turns after one unmeasured.

    What a run writes at `output` is removed after it.
    """
    seconds: dict[Any, list[tuple[float, float]]] = {key: [] for key in runs}
    for turn in range(rounds + 1):
        for key, run in runs.items():
            cpu, elapsed = time.process_time(), time.perf_counter()
            run()
            measured = time.perf_counter() - elapsed, time.process_time() - cpu
            for made in output.parent.glob(f"{output.name}*"):
                made.unlink()
            if turn:
                seconds[key].append(measured)
    return {
        key: (median(e for e, _ in pairs), median(c for _, c in pairs))
        for key, pairs in seconds.items()
    }


def print_stages(
    level: str, length: int, tokens: int, seconds: Mapping[str, tuple[float, float]]
) -> None:
    """A line for each stage."""
    before = 0.0
    for stage, (elapsed, cpu) in seconds.items():
        added = (cpu - before) / tokens * 1e6
        before = cpu
        print(
            f"| {level} | {length} | {stage} | {added:.2f} | {tokens / elapsed / 1e6:.2f} |",
            flush=True,
        )


def predict(costs: Mapping[str, float], cores: int) -> float:
    """M tokens/s of a process by the CPU seconds for a million tokens of each stage."""
    slowest = max(sum(costs.get(stage, 0.0) for stage in lane) for lane in LANES)
    return 1 / max(slowest, sum(costs.values()) / cores)


def print_model(
    tokens: int, one: Mapping[str, tuple[float, float]], two: Mapping[str, tuple[float, float]]
) -> None:
    """The costs of the stages on one core, and speeds: predicted, and measured where they can be.

    Args:
      tokens: tokens of a run.
      one: elapsed and CPU seconds up to each stage, on one core.
      two: elapsed and CPU seconds of the whole job, on two.
    """
    up_to = [cpu / tokens * 1e6 for _, cpu in one.values()]
    costs = {stage: up_to[i] - (up_to[i - 1] if i else 0) for i, stage in enumerate(one)}
    print("| stage | CPU s per M tokens |", "|---|---|", sep="\n")
    for stage, seconds in costs.items():
        print(f"| {stage} | {seconds:.2f} |")
    print("\n| cores | predicted M tokens/s | measured |", "|---|---|---|", sep="\n")
    for count, measured in ((1, one), (2, two)):
        speed = tokens / measured[STAGES[-1]][0] / 1e6
        print(f"| {count} | {predict(costs, count):.2f} | {speed:.2f} |")
    print(f"| 4 | {predict(costs, 4):.2f} |  |")
    print("\n| host of | cores | one process | wanted | processes | cores they use |")
    print("|---|---|---|---|---|---|")
    for chips, count, wanted in HOSTS:
        speed = predict(costs, count)
        processes = math.ceil(wanted / speed)
        used = min(count, wanted * sum(costs.values()))
        print(f"| {chips} | {count} | {speed:.2f} | {wanted} | {processes} | {used:.1f} |")


def keep_to_cores(count: int) -> None:
    """Lets all threads of this process run on some of its cores."""
    chosen = sorted(_CORES)[:count]
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), chosen)


def print_job(
    level: str,
    length: int,
    format: str,
    tokens: int,
    seconds: tuple[float, float],
    busy: float,
) -> None:
    """A line for the whole job, whose device is busy for some seconds."""
    elapsed, cpu = seconds
    vectors = tokens / length if level == "sequence" else tokens
    vectors -= 2 * tokens / length if level == "word" else 0
    print(
        f"| {level} | {length} | {format} | {tokens / elapsed / 1e6:.2f} "
        f"| {tokens / length / elapsed / 1e3:.1f} | {vectors * 768 * 2 / elapsed / 1e6:.0f} "
        f"| {cpu / tokens * 1e6:.2f} | {cpu / elapsed:.2f} | {1 - busy / elapsed:.0%} |",
        flush=True,
    )


def main() -> None:
    """Prints one of both tables."""
    arguments = _parse_arguments()
    print(f"{cores()} cores, load {os.getloadavg()[0]:.1f}; medians of {arguments.rounds} runs")
    if arguments.model:
        print("width 768, float16, one process for each speed")
    elif arguments.stages:
        print("| level | length | up to | CPU s added per M tokens | M tokens/s |")
        print("|---|---|---|---|---|")
    else:
        print(
            "| level | length | format | M tokens/s | k rows/s | MB/s | CPU s/M tokens | cores "
            "| device idle |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for level in arguments.levels:
            runtime = NullRuntime(1e6 * arguments.device)
            extractor = make_extractor(level, runtime, packing=not arguments.no_packing)
            gc.freeze()  # TensorFlow's objects, as in a command: see `machine.quiet_tensorflow`
            words = words_of_one_token(arguments.texts, extractor)
            for length in arguments.lengths:
                _measure_length(runtime, extractor, level, length, words, Path(folder), arguments)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=400, help="features of a run")
    parser.add_argument("--max-tokens", type=int, default=2_000_000, help="tokens of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--levels", nargs="*", default=LEVELS, choices=LEVELS)
    parser.add_argument("--formats", nargs="*", default=FAST, choices=list(FORMATS))
    parser.add_argument(
        "--device", type=float, default=math.inf, help="M tokens/s of an imitated device"
    )
    parser.add_argument("--no-packing", action="store_true", help="each text in a row of its own")
    parser.add_argument("--model", action="store_true", help="predictions for more cores alone")
    parser.add_argument("--stages", action="store_true", help="the table of stages alone")
    arguments = parser.parse_args()
    if arguments.device <= 0 or (
        arguments.device < math.inf and (arguments.stages or arguments.model)
    ):
        parser.error("--device is a positive number, without --stages and --model")
    return arguments


def _measure_length(
    runtime: NullRuntime,
    extractor: FeatureExtractor,
    level: str,
    length: int,
    words: list[str],
    folder: Path,
    arguments: argparse.Namespace,
) -> None:
    """Prints the lines of rows of one length."""
    texts, output = folder / "texts.txt", folder / "features"
    bytes_of_token = 1536 / length if level == "sequence" else 1536
    tokens = min(int(arguments.megabytes * 1e6 / bytes_of_token), arguments.max_tokens)
    tokens = max(tokens // length, 1) * length
    write_texts(texts, words, tokens, length)
    format_of_stages = arguments.formats[0] if arguments.model else "parquet"
    by_stage = format_of_stages if arguments.stages or arguments.model else None
    kinds = (
        [(stage, stage, by_stage) for stage in STAGES if stage != "convert" or by_stage in BEHIND]
        if by_stage
        else [(format, "write", format) for format in arguments.formats]
    )
    runs = {
        key: functools.partial(run_stage, stage, extractor, texts, output, format)
        for key, stage, format in kinds
    }
    if arguments.model:
        print(f"\n{level}, rows of {length}, to {arguments.formats[0]}\n")
        keep_to_cores(1)
        one = measure(runs, output, arguments.rounds)
        keep_to_cores(2)
        job = {STAGES[-1]: runs[STAGES[-1]]}
        print_model(tokens, one, measure(job, output, arguments.rounds))
        return
    runtime.busy = 0.0
    seconds = measure(runs, output, arguments.rounds)
    if arguments.stages:
        print_stages(level, length, tokens, seconds)
        return
    busy = runtime.busy / len(runs) / (arguments.rounds + 1)
    for format, values in seconds.items():
        print_job(level, length, format, tokens, values, busy)


if __name__ == "__main__":
    main()
