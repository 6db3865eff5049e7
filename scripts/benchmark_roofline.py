"""Compares the encoder's rate of arithmetic with that of a matrix product of NumPy's BLAS.

    .venv/bin/python scripts/benchmark_roofline.py

Runs a step at three shapes of the size of all-MiniLM-L6-v2, with random weights, in turns with a
product of NumPy; prints medians. It takes about ten seconds. benchmarking/diary.md keeps the ratios
of releases.
"""

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from bert_features.config.bert_config import BertConfig
from bert_features.config.output_specs import (
    plan_outputs,
)
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.step import DeviceStep
from bert_features.machine.hardware import cores
from bert_features.runtime.tensorflow import TensorFlowRuntime

CONFIG = BertConfig(
    vocab_size=30522,
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=12,
    intermediate_size=1536,
    hidden_act="gelu_erf",
)
SHAPES = ((85, 24), (32, 64), (16, 128))
PRODUCT = (2048, 384, 1536)
ROUNDS = 9


def main() -> None:
    """Prints the table."""
    step = _step()
    rng = np.random.default_rng(0)
    rows, inner, columns = PRODUCT
    left = rng.normal(size=(rows, inner)).astype(np.float32)
    right = rng.normal(size=(inner, columns)).astype(np.float32)
    print(f"float32, {cores()} cores; medians of {ROUNDS} interleaved runs")
    print("| rows x length | tokens/s | encoder, GFLOP/s | NumPy's product, GFLOP/s | ratio |")
    print("|---|---|---|---|---|")
    for batch, length in SHAPES:
        inputs = {
            "input_word_ids": rng.integers(0, CONFIG.vocab_size, (batch, length)),
            "input_mask": np.ones((batch, length)),
            "input_type_ids": np.zeros((batch, length)),
        }
        arrays = {name: np.asarray(value, np.int32) for name, value in inputs.items()}
        encoder, product = _medians(lambda x=arrays: step(x)(), lambda: left @ right)
        tokens = batch * length
        mine = tokens * flops_per_token(CONFIG, length) / encoder / 1e9
        roof = 2 * rows * inner * columns / product / 1e9
        print(
            f"| {batch} x {length} | {tokens / encoder:,.0f} | {mine:.0f} | {roof:.0f} "
            f"| {mine / roof:.2f} |"
        )


def flops_per_token(config: BertConfig, length: int) -> int:
    """Operations per token in the matrix products; a multiply-add counts as two."""
    hidden, inner = config.hidden_size, config.intermediate_size
    dense = 4 * hidden * hidden + 2 * hidden * inner
    return 2 * config.num_hidden_layers * (dense + 2 * length * hidden)


def _step() -> Callable[..., Callable[[], object]]:
    outputs = plan_outputs([OutputConfig.of({"layers": [-1]})], CONFIG)
    model_fn = DeviceStep(CONFIG, None, outputs)
    return TensorFlowRuntime("cpu").compile(model_fn.step, model_fn.weights)


def _medians(*functions: Callable[[], object]) -> list[float]:
    """Median seconds of each function, run in turns; the first runs trace and do not count."""
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(ROUNDS + 2):
        for function, times in zip(functions, seconds, strict=True):
            started = time.perf_counter()
            function()
            if turn > 1:
                times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


if __name__ == "__main__":
    main()
