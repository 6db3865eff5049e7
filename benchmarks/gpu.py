"""Compares the JAX runtime on a GPU with transformers (sdpa) and sentence-transformers.

    python benchmarks/gpu.py [--json FILE] [--markdown FILE] [--models BERT-Base,MiniLM]

BERT-Base, MiniLM and BERT-Large with random weights in bfloat16, on rows of 32 to 512 tokens
without padding, then on texts of mixed lengths: of sentences, and log-normal. There each program
makes its own batches before the clock starts: ours packs, transformers pads, and where
flash-attention is installed leaves the padding out. Only tokens of texts count.

Each program takes token ids on the host and returns one vector per row to the host, the
mean of the last layer; tokenizing is not measured. Each program runs in a separate process with its
fastest batch size. All run in turns, and medians are reported. A time counts only if the vectors of
a padded batch agree with ours: each cosine is at least 0.999.

Our program needs jax with its CUDA plugin, keras (with numpy, h5py, ml_dtypes) and pydantic, but
neither tensorflow nor tensorflow-text; bert_features may be installed or on PYTHONPATH. The peers
need torch, transformers and sentence-transformers; a peer that is not installed is listed and left
out. `--device cpu --quick` tests the script at toy size on any machine.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Before JAX is imported, here and in the child processes: JAX would reserve most of the GPU memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # one GPU, which is all the peers use
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np

if importlib.util.find_spec("bert_features") is None:
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarking.gpu_programs import MODULES, OURS, random_batch
from benchmarking.gpu_workers import ProgramError, Worker

from bert_features.config.bert_config import BertConfig
from bert_features.errors import BertFeaturesError

MODELS = {
    "BERT-Base": BertConfig(vocab_size=30522, hidden_act="gelu_erf"),
    "MiniLM": BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        intermediate_size=1536,
        hidden_act="gelu_erf",
    ),
    "BERT-Large": BertConfig(
        vocab_size=30522,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        hidden_act="gelu_erf",
    ),
}
LENGTHS = (32, 64, 128, 256, 512)
TOKENS = (16384, 32768, 65536)  # tokens of a batch; each program uses its fastest
# Lengths of texts: the median, and the deviation of the logarithm. Sentences as of ud_ewt.txt.
MIXED = {"sentences": (16, 0.6), "log-normal": (90, 0.8)}
QUICK_MODELS = {
    "toy": BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_act="gelu_erf",
    )
}
QUICK_LENGTHS = (8, 16)
QUICK_TOKENS = (64, 128)

# Published dense rates of the matrix units in bfloat16, TFLOP/s, by device name; the first matching
# pattern counts. From NVIDIA's data sheets, half of their rates "with sparsity". Volta and Turing
# have no bfloat16 units, so they have their float16 rate.
PEAKS: tuple[tuple[str, float], ...] = (
    (r"\bB200\b", 2250.0),
    (r"\bH[12]00 NVL\b", 835.0),
    (r"\bH100 PCIe\b", 756.0),
    (r"\bG?H[12]00\b", 989.0),
    (r"\bA100\b", 312.0),
    (r"\bA30\b", 165.0),
    (r"\bA40\b", 150.0),
    (r"\bA10\b", 125.0),
    (r"\bL40S\b", 362.0),
    (r"\bL40\b", 181.0),
    (r"\bL4\b", 121.0),
    (r"\bRTX 4090$", 165.0),
    (r"\bRTX 3090$", 71.0),
    (r"\bT4\b", 65.0),
    (r"\bV100-PCIE\b", 112.0),
    (r"\bV100\b", 125.0),
)
LOWEST_COSINE = 0.999  # the project's contract for bfloat16
TARGET_RATIO, MIXED_TARGET = 1.0, 1.2  # our speed / the fastest peer's; on mixed lengths
TARGET_SHARE = 0.55  # our rate / the peak, at TARGET_LENGTH
TARGET_LENGTH = 128


def main() -> int:
    """Measures and reports; the exit status is 1 if a program failed or its vectors differ."""
    options = _options()
    logging.disable(logging.WARNING)
    try:
        report = measure(options)
    except (BertFeaturesError, ProgramError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(markdown(report))
    return 1 if report["problems"] else 0


def _save(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Writes the results so far, because a run may be cut off."""
    if options.markdown:
        options.markdown.write_text(markdown(report) + "\n", encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("gpu", "cpu"), default="gpu", help="device to measure; default gpu"
    )
    parser.add_argument("--quick", action="store_true", help="toy size, to test the script")
    parser.add_argument("--models", type=_names, help="models to measure, separated by commas")
    parser.add_argument("--lengths", type=_numbers, help="lengths of rows, separated by commas")
    parser.add_argument(
        "--tokens", type=_numbers, help="tokens of a batch to try, separated by commas"
    )
    parser.add_argument("--rounds", type=_number, default=5, help="timed rounds; default 5")
    parser.add_argument("--steps", type=_number, default=8, help="batches of a round; default 8")
    parser.add_argument(
        "--peak-tflops", type=float, help="peak of the chip in bfloat16, if unknown here"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    models = QUICK_MODELS if options.quick else MODELS
    unknown = [name for name in options.models or () if name not in models]
    if unknown:
        parser.error(f"--models {', '.join(unknown)}; allowed: {', '.join(models)}")
    options.models = {name: models[name] for name in options.models or models}
    options.lengths = options.lengths or (QUICK_LENGTHS if options.quick else LENGTHS)
    options.tokens = options.tokens or (QUICK_TOKENS if options.quick else TOKENS)
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}; allowed: an integer of at least 1")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split(","))


# The measurement.


def flops_per_token(config: BertConfig, length: float) -> float:
    """Operations per token in the blocks' matrix products; a multiply-add counts as two."""
    hidden, inner = config.hidden_size, config.intermediate_size
    dense = 4 * hidden * hidden + 2 * hidden * inner
    return 2 * config.num_hidden_layers * (dense + 2 * length * hidden)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures everything; returns the content of the JSON file.

    Raises:
      BertFeaturesError: our own program does not start, for example without a GPU.
    """
    absent = {
        name: [module for module in modules if importlib.util.find_spec(module) is None]
        for name, modules in MODULES.items()
    }
    installed = [name for name, missing in absent.items() if not missing]
    report: dict[str, Any] = {
        "device": "",
        "peak_tflops": None,
        "python": platform.python_version(),
        "versions": {},
        "absent": {
            name: f"not installed: {', '.join(missing)}"
            for name, missing in absent.items()
            if missing
        },
        "problems": [],
        "results": [],
    }
    for model, config in options.models.items():
        with _workers([OURS, *installed], config, options.device, report) as workers:
            run = _Run(model, config, workers, options, report["problems"])
            report["device"] = workers[OURS].facts["device"]
            report["peak_tflops"] = options.peak_tflops or peak_of(report["device"])
            for length in options.lengths:
                print(f"{model}, {length} tokens", file=sys.stderr)
                report["results"] += _measure_length(run, length)
                _save(report, options)
            for name in MIXED:
                print(f"{model}, {name}", file=sys.stderr)
                report["results"] += _measure_mixed(run, name)
                _save(report, options)
    return report


@contextlib.contextmanager
def _workers(
    names: Sequence[str], config: BertConfig, device: str, report: dict[str, Any]
) -> Iterator[dict[str, Worker]]:
    workers: dict[str, Worker] = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            try:
                worker = Worker(name, config, device)
            except ProgramError as error:
                if name == OURS:
                    reason = str(error).split(". Pass ")[0]  # the rest names other options
                    raise BertFeaturesError(
                        f"{name} does not start: {reason}. Without a GPU, test the script with "
                        "--device cpu --quick"
                    ) from error
                report["problems"].append(f"{name} does not start: {error}")
                continue
            stack.callback(worker.close)
            workers[name] = worker
            report["versions"].update(worker.facts["versions"])
        yield workers


class _Run(NamedTuple):
    """A model, the programs that compute it, by name, and where their errors are noted."""

    model: str
    config: BertConfig
    workers: dict[str, Worker]
    options: argparse.Namespace
    problems: list[str]


def _measure_length(run: _Run, length: int) -> list[dict[str, Any]]:
    """A row for each program whose vectors agree with ours, at its fastest batch size."""
    workers, options = run.workers, run.options
    count = max(options.tokens[0] // length, 1)
    batch = random_batch(run.config, count, length, padded=True, seed=99)
    reference = workers[OURS].vectors(batch)
    rows, cosines = {}, {}
    for name, worker in workers.items():
        with _noting(run.problems, f"{name}, {run.model}, {length} tokens"):
            cosines[name] = _lowest_cosine(reference, worker.vectors(batch))
            rows[name] = _best_rows(worker, length, options)

    def speed(name: str) -> float:
        taken = workers[name].seconds(rows[name], length, options.steps)
        return rows[name] * length * options.steps / taken

    return _in_turns(run, length, rows, cosines, speed, flops_per_token(run.config, length))


def mixed_lengths(name: str, longest: int, tokens: int) -> np.ndarray:
    """Lengths of texts of some `tokens` in all, int64 [R]."""
    center, deviation = MIXED[name]
    drawn = np.random.default_rng(7).lognormal(np.log(min(center, longest / 4)), deviation, tokens)
    lengths = np.clip(drawn.astype(np.int64), 3, longest)
    return lengths[: int(np.searchsorted(np.cumsum(lengths), tokens)) + 1]


def _measure_mixed(run: _Run, name: str) -> list[dict[str, Any]]:
    """As `_measure_length`, for texts of several lengths; its `length` is their name."""
    workers, options = run.workers, run.options
    longest, total = run.config.max_position_embeddings, options.steps * max(options.tokens)
    lengths = mixed_lengths(name, longest, total)
    few = lengths[: len(lengths) // 8 + 1]
    reference = workers[OURS].text_vectors(few, options.tokens[0])
    best, cosines = {}, {}
    for program, worker in workers.items():
        where = f"{program}, {run.model}, {name}"
        with _noting(run.problems, where):
            theirs = worker.text_vectors(few, options.tokens[0])
            cosines[program] = _lowest_cosine(reference, theirs)
            taken = {}
            for tokens in options.tokens:
                with _noting(run.problems, f"{where}, batches of {tokens} tokens"):
                    worker.text_seconds(lengths, tokens)  # compiles
                    taken[worker.text_seconds(lengths, tokens)] = tokens
            if taken:
                best[program] = taken[min(taken)]

    def speed(program: str) -> float:
        return float(lengths.sum() / workers[program].text_seconds(lengths, best[program]))

    rows = {program: f"{tokens} tokens" for program, tokens in best.items()}
    # The operations grow evenly with the length, so those of a token are those at this one.
    flops = flops_per_token(run.config, (lengths**2).sum() / lengths.sum())
    return _in_turns(run, name, rows, cosines, speed, flops)


def _in_turns(
    run: _Run,
    length: int | str,
    rows: Mapping[str, int | str],
    cosines: Mapping[str, float],
    speed: Callable[[str], float],
    flops: float,
) -> list[dict[str, Any]]:
    """The result of each program in `rows`, by the median of its speeds in tokens/s."""
    speeds: dict[str, list[float]] = {program: [] for program in rows}
    for turn in range(run.options.rounds):
        for program in list(rows) if turn % 2 == 0 else list(rows)[::-1]:
            with _noting(run.problems, f"{program}, {run.model}, {length}"):
                speeds[program].append(speed(program))
    return [
        {
            "model": run.model,
            "length": length,
            "program": program,
            "rows": rows[program],
            "tokens_per_second": statistics.median(values),
            "rounds": values,
            "lowest_cosine": cosines[program],
            "tflops": statistics.median(values) * flops / 1e12,
        }
        for program, values in speeds.items()
        if values
    ]


@contextlib.contextmanager
def _noting(problems: list[str], what: str) -> Iterator[None]:
    """Continues if a program fails, and notes its error."""
    try:
        yield
    except ProgramError as error:
        problems.append(f"{what}: {error}")


def _best_rows(worker: Worker, length: int, options: argparse.Namespace) -> int:
    """The rows of a batch at which a program is fastest; sizes that fail (memory) are skipped.

    Raises:
      ProgramError: every size fails.
    """
    speeds, failure = {}, ""
    for tokens in options.tokens:
        rows = max(tokens // length, 1)
        try:
            speeds[rows] = rows / worker.seconds(rows, length, max(options.steps // 2, 2))
        except ProgramError as error:
            failure = str(error)
    if not speeds:
        raise ProgramError(failure)
    return max(speeds, key=lambda rows: speeds[rows])


def _lowest_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The lowest cosine of two vectors of one row; ProgramError if it is too low."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    lowest = float(((a * b).sum(axis=1) / norms).min())
    if not lowest >= LOWEST_COSINE:
        raise ProgramError(f"its vectors differ from ours: lowest cosine {lowest:.5f}")
    return lowest


def peak_of(device: str) -> float | None:
    """Peak of a device in bfloat16, TFLOP/s; None if it is unknown."""
    return next((peak for pattern, peak in PEAKS if re.search(pattern, device)), None)


# The report.


def markdown(report: dict[str, Any]) -> str:
    """The results as Markdown tables, and whether the targets were met."""
    peak = report["peak_tflops"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"{report['device']}, bfloat16, Python {report['python']}, {versions}; peak "
        + (f"{peak:g} TFLOP/s" if peak else "unknown: pass --peak-tflops"),
        *(f"Left out: {name} ({why})" for name, why in report["absent"].items()),
        *(f"Problem: {problem}" for problem in report["problems"]),
        "",
        "| model | tokens per row | program | rows | tokens/s (lowest – highest) "
        "| speed-up | TFLOP/s | share of peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = {_place(row): row for row in report["results"] if row["program"] == OURS}
    for row in report["results"]:
        mine = ours.get(_place(row))
        ratio = ""
        if mine is not None and mine is not row:
            ratio = f"{mine['tokens_per_second'] / row['tokens_per_second']:.2f}"
        share = f"{row['tflops'] / peak:.1%}" if peak else "-"
        low, high = min(row["rounds"]), max(row["rounds"])
        lines.append(
            f"| {row['model']} | {row['length']} | {row['program']} | {row['rows']} "
            f"| {row['tokens_per_second']:,.0f} ({low:,.0f} – {high:,.0f}) "
            f"| {ratio} | {row['tflops']:.1f} | {share} |"
        )
    return "\n".join([*lines, "", *_targets(report, ours)])


def _place(row: dict[str, Any]) -> tuple[str, int | str]:
    return row["model"], row["length"]


def _targets(
    report: dict[str, Any], ours: dict[tuple[str, int | str], dict[str, Any]]
) -> list[str]:
    lines = []
    for (model, length), mine in ours.items():
        peers = [row for row in report["results"] if _place(row) == (model, length)]
        peers = [row["tokens_per_second"] for row in peers if row is not mine]
        if peers:
            ratio = mine["tokens_per_second"] / max(peers)
            target = MIXED_TARGET if length in MIXED else TARGET_RATIO
            lines.append(
                _target(f"{model}, {length}: speed-up over the fastest peer", ratio, target)
            )
        if length == TARGET_LENGTH and report["peak_tflops"]:
            share = mine["tflops"] / report["peak_tflops"]
            lines.append(_target(f"{model}, {length}: share of the peak", share, TARGET_SHARE))
    return lines


def _target(name: str, value: float, target: float) -> str:
    return f"{name} {value:.2f}, target {target}: {'met' if value >= target else 'missed'}"


if __name__ == "__main__":
    sys.exit(main())
