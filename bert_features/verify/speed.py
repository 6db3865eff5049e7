"""Speed of the device alone, of the host alone, and of both together, as `extract` runs them.

All compute the mean of each row, so that the figures can be compared. The texts are made up: their
words are single tokens, and every row has the same length.

Shape legend: `B` rows, `S` tokens of a row.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.encoder.step import Precision
from bert_features.extraction.counts import Counts
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.writing import write_behind
from bert_features.formats import open_writer
from bert_features.machine import hardware
from bert_features.machine.tpu_installation import installed
from bert_features.machine.versions import find_versions
from bert_features.readers.examples import read_examples
from bert_features.runtime.base import CompiledStep, Devices, Runtime, Started, Step
from bert_features.tpu.chips import peak_flops
from bert_features.verify.attention import LENGTHS, ROUNDS, lengths_up_to, time_steps
from bert_features.verify.report import Speed, Surroundings, Timing, describe_error

# Tokens of the rows of the made-up texts, where the checkpoint takes as many.
_LENGTH = 128
# The texts are as many as the device computes in this time, or as a host reads in a few seconds.
# The host alone has more of them where the device is slow.
_SECONDS = 4.0
_MAX_TOKENS = 4_000_000
_MIN_HOST_TOKENS = 500_000
_SEED = 20


def measure(
    extractor: FeatureExtractor,
    precision: Precision,
    settings: Mapping[str, Any],
    timings: Sequence[Timing] = (),
) -> Surroundings:
    """Measures the speed of an extractor's devices; `settings` of the output are replaced."""
    devices = extractor.devices
    chips = _chips(devices)
    peak = peak_flops(chips[0]["kind"], devices.count, precision)
    speeds = []
    try:
        for part, length, speed in _speeds(extractor, precision, settings, timings):
            flops = flops_per_token(extractor.checkpoint.config, length)
            used = speed * flops / peak if speed and peak and part != "host" else None
            speeds.append(Speed(part, length, speed, used, "" if speed else "failed"))
    # A device and its compiler may raise anything; finding that out is the purpose.
    except Exception as error:
        length = min(extractor.checkpoint.config.positions, _LENGTH)
        speeds.append(Speed("extract", length, None, None, describe_error(error)))
    versions = find_versions(extractor.preparation.runtime.name) | {"libtpu": installed("libtpu")}
    return Surroundings(versions, chips, precision, tuple(speeds))


def flops_per_token(config: BertConfig, length: int) -> float:
    """The operations of the matrix products for a token in a row of `length` tokens."""
    hidden, inner = config.hidden_size, config.intermediate_size
    products = 4 * hidden * hidden + (3 if config.gated else 2) * hidden * inner
    layers = range(config.num_hidden_layers)
    reaches = [config.attention_of(config.block_of(layer))[1] for layer in layers]
    seen = sum(length if r is None else min(length, 2 * r + 1) for r in reaches)
    return 2.0 * (len(layers) * products + 2 * seen * hidden)


def _chips(devices: Devices) -> tuple[dict[str, Any], ...]:
    """Kind and memory of each device, as JAX lists them; TensorFlow lists neither."""
    listed = getattr(devices, "devices", ())
    if not listed or devices.kind == "cpu":
        kind = hardware.describe_processor(devices.kind)
        named = f"TPU {kind}" if devices.kind == "tpu" else kind
        return ({"kind": named, "memory_bytes": None},) * devices.count
    return tuple(
        {
            "kind": device.device_kind,
            "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        }
        for device in listed
    )


def _speeds(
    extractor: FeatureExtractor,
    precision: Precision,
    settings: Mapping[str, Any],
    timings: Sequence[Timing],
) -> Iterator[tuple[str, int, float | None]]:
    """Part, length, and tokens/s; None if the device failed at that length."""
    wanted = {"layers": [-1], "level": "sequence", "pooling": "mean", "precision": precision}
    positions = extractor.checkpoint.config.positions
    runtime = _PausedRuntime(extractor.preparation.runtime)
    job = FeatureExtractor(
        ExtractConfig.of({**settings, **wanted, "max_seq_length": min(positions, LENGTHS[-1])}),
        runtime=runtime,
        checkpoint=extractor.checkpoint,
    )
    expected = 0.0
    for timing in timings or _time_device(job, runtime, positions):
        speed = timing.tokens_per_second("xla")
        yield "device", timing.length, speed
        if speed and timing.length <= _LENGTH:
            expected = speed
    length = min(positions, _LENGTH)
    rates = _job_speeds(job, runtime, length, min(expected * _SECONDS, _MAX_TOKENS))
    yield from ((part, length, rate) for part, rate in rates.items())


def _time_device(
    job: FeatureExtractor, runtime: "_PausedRuntime", positions: int
) -> Iterator[Timing]:
    devices, packing = job.devices, job.preparation.packing
    return time_steps(
        {"xla": runtime.step.computing},
        job.preparation.buckets if packing else lengths_up_to(positions),
        devices=devices.count,
        vocabulary=job.checkpoint.config.vocab_size,
        tokens=job.preparation.batch_params()["batch_tokens"] // devices.count,
        rounds=1 if devices.kind == "cpu" else ROUNDS,
        packed_positions=positions if packing else None,
    )


def _job_speeds(
    job: FeatureExtractor, runtime: "_PausedRuntime", length: int, tokens: float
) -> dict[str, float]:
    """Tokens/s of the host alone, and of the whole job."""
    shapes = job.preparation.shapes
    shape = next(s for s in zip(shapes.rows, shapes.buckets, strict=True) if s[1] >= length)
    whole = shape[0] * (shape[1] // length if shapes.packed else 1)  # texts of a batch
    pieces: Sequence[str] = job.tokenizer.tokens
    if not job.tokenizer.splits_words:
        # SentencePiece writes the blank before a word as ▁, byte-level BPE as Ġ.
        pieces = [piece[1:] for piece in pieces if piece.startswith(("▁", "Ġ"))] or pieces
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha()]
    with tempfile.TemporaryDirectory(prefix="bert_features_verify_") as folder:
        few, many = Path(folder, "few.txt"), Path(folder, "many.txt")
        _write_texts(few, words, whole, length)
        rates = {}
        for part, wanted in {"host": max(tokens, _MIN_HOST_TOKENS), "extract": tokens}.items():
            _write_texts(many, words, max(int(wanted / length / whole), 2) * whole, length)
            runtime.step.paused = part == "host"
            _tokens_per_second(job, few)  # compiles
            rates[part] = _tokens_per_second(job, many)
    return rates


def _write_texts(path: Path, words: Sequence[str], rows: int, length: int) -> None:
    """Writes lines of `length` tokens, with [CLS] and [SEP]."""
    choose = random.Random(_SEED).choices
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            file.write(" ".join(choose(words or ["a"], k=length - 2)) + "\n")


def _tokens_per_second(
    job: FeatureExtractor, texts: Path, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The speed of a job from a text file to a features file."""
    counts, metadata = Counts(), job.metadata()
    started = clock()
    with open_writer(
        texts.with_suffix(".parquet"),
        format="parquet",
        features=job.features(),
        metadata=metadata,
        overwrite=True,
    ) as writer:
        batches = job.batches(lambda: read_examples(texts), counts=counts, warn=False)
        write_behind(batches, writer.write, max_bytes=job.config.buffer_mb << 20)
    return counts.tokens / (clock() - started)


class _PausedRuntime(Runtime):
    """A runtime whose step can be paused: it then computes nothing, as if it cost nothing."""

    step: "_PausedStep"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.name, self.devices = runtime.name, runtime.devices
        self.process, self.any_shape = runtime.process, runtime.any_shape

    def compile(self, step: Step, weights: Sequence[Any], **choices: Any) -> CompiledStep:
        """See `Runtime`."""
        self.step = _PausedStep(self._runtime.compile(step, weights, **choices))
        return self.step

    def bfloat16_slowdown(self) -> float:
        """See `Runtime`."""
        return self._runtime.bfloat16_slowdown()


class _PausedStep(CompiledStep):
    """Computes; or, if paused, computes the first batch of each shape and gives it to the rest."""

    def __init__(self, computing: CompiledStep) -> None:
        self.computing, self.in_flight = computing, computing.in_flight
        self.paused = False
        self._outputs: dict[tuple[int, ...], dict[str, np.ndarray]] = {}

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        if not self.paused:
            return self.computing(batch)
        shape = next(iter(batch.values())).shape
        if shape not in self._outputs:
            self._outputs[shape] = self.computing(batch)()
        return Started(lambda: self._outputs[shape], lambda: True)
