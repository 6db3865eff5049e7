"""Compares the memory traffic of our BERT step on a TPU with that of a plain JAX step.

Nothing runs on a TPU: its compiler compiles both ahead of time, and the script compares the counts
of `cost_analysis()["bytes accessed"]` and `hlo.hbm_bytes`.

    pip install '.[tpu-compile]'
    python benchmarks/tpu_compile.py [--topology v5e:2x2] [--tokens 16384] [LENGTH …]
    python benchmarks/tpu_compile.py --packing [--topology v6e:2x2]

The plain step is the obvious one in JAX: rows of tokens, one product each for query, key and value,
`einsum` over heads, softmax and layer norm in float32, everything else in bfloat16, words by index.
Both compute the sum of the last four layers of BERT-base in float32.

With `--packing` it compares our step on padded rows with the same on packed rows, for each token of
a text: the shapes and batches are those that a run on one chip, and on eight, makes of three
distributions of lengths.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `I` intermediate size.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.batches.bucketing import BatchShapes, plan_batches
from bert_features.config.extract_config import ExtractConfig
from bert_features.tpu import hlo as tpu_hlo
from bert_features.tpu.compile import (
    TpuCompiler,
    compile_for_tpu,
    make_mesh,
    prepare_process,
    program_text,
)
from bert_features.tpu.job import ChipJob, plan_job
from bert_features.tpu.report import Bounds

prepare_process()

import jax  # noqa: E402 - the environment must be set before the import
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

VOCABULARY, POSITIONS, TYPES = 30_522, 512, 2
H, A, I, BLOCKS = 768, 12, 3072, 12  # noqa: E741 - the names of the legend
D = H // A
TARGET = 0.8
# Tokens that a run sorts together: as many as have 256 MiB of features (`--buffer-mb`).
MEGABATCH_TOKENS = 256 * 2**20 // (4 * H)


def plain_weights() -> dict[str, Any]:
    """Name -> shape of the plain step's weights; `blocks` holds a list with a dict per block."""
    block = dict.fromkeys(("query", "key", "value", "output"), (H, H))
    block |= {f"{name}_bias": (H,) for name in block}
    block |= {"inner": (H, I), "inner_bias": (I,), "outer": (I, H), "outer_bias": (H,)}
    block |= {f"{norm}_{part}": (H,) for norm in ("norm_1", "norm_2") for part in ("gamma", "beta")}
    tables = {"words": (VOCABULARY, H), "positions": (POSITIONS, H), "types": (TYPES, H)}
    return tables | {"gamma": (H,), "beta": (H,), "blocks": [block] * BLOCKS}


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    """[B, S, H] -> bfloat16 [B, S, H]."""
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return ((x - mean) * jax.lax.rsqrt(variance + 1e-12) * gamma + beta).astype(jnp.bfloat16)


def plain_block(x: Any, w: Mapping[str, Any], bias: Any) -> Any:
    """[B, S, H], float32 [B, 1, 1, S] -> [B, S, H]."""
    batch, length, _ = x.shape
    query, key, value = (
        (x @ w[name] + w[f"{name}_bias"]).reshape(batch, length, A, D)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqad,bkad->baqk", query, key).astype(jnp.float32)
    weights = jax.nn.softmax(scores * D**-0.5 + bias, axis=-1).astype(jnp.bfloat16)
    context = jnp.einsum("baqk,bkad->bqad", weights, value).reshape(batch, length, H)
    x = layer_norm(
        x + context @ w["output"] + w["output_bias"], w["norm_1_gamma"], w["norm_1_beta"]
    )
    inner = jax.nn.gelu(x @ w["inner"] + w["inner_bias"], approximate=True)
    return layer_norm(x + inner @ w["outer"] + w["outer_bias"], w["norm_2_gamma"], w["norm_2_beta"])


def plain_step(w: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
    """Arrays int32 [B, S] -> float32 [B, S, H], the sum of the last four blocks."""
    ids = batch["input_word_ids"]
    x = w["words"][ids] + w["positions"][: ids.shape[1]] + w["types"][batch["input_type_ids"]]
    x = layer_norm(x, w["gamma"], w["beta"])
    bias = jnp.where(batch["input_mask"] > 0, 0.0, -10000.0).astype(jnp.float32)[:, None, None, :]
    states = []
    for block in w["blocks"]:
        x = plain_block(x, block, bias)
        states.append(x)
    return sum(state.astype(jnp.float32) for state in states[-4:])


def compile_plain(job: Any, rows: int, length: int) -> Any:
    """Compiles the plain step for `rows` rows on each chip."""
    mesh = make_mesh(job.topology)
    everywhere, by_rows = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec(), PartitionSpec("data"))
    )
    weights = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=everywhere),
        plain_weights(),
        is_leaf=lambda node: isinstance(node, tuple),
    )
    ids = jax.ShapeDtypeStruct((rows * job.topology.chips, length), jnp.int32, sharding=by_rows)
    batch = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), ids)
    return compile_for_tpu(plain_step, weights, batch, by_rows)


def kilobytes(compiled: Any, tokens: int) -> tuple[float, float]:
    """Traffic in kB per token: accessed, by the compiler's count; in HBM, by our count."""
    text = program_text(compiled)
    in_hbm = None if text is None else tpu_hlo.hbm_bytes(text)
    moved = compiled.cost_analysis()["bytes accessed"], float("nan") if in_hbm is None else in_hbm
    return moved[0] / tokens / 1e3, moved[1] / tokens / 1e3


def rows_of_table(topology: str, tokens: int, lengths: list[int]) -> Iterator[str]:
    """Yields the lines of the table as soon as they are known."""
    yield "| rows x length | plain, kB/token | ours | ratio | plain, in HBM | ours |"
    yield "|---|---|---|---|---|---|"
    settings = {"layers": [-1, -2, -3, -4], "combine": "sum", "max_seq_length": max(lengths)}
    job = plan_job(
        ExtractConfig.of(settings | {"buckets": lengths}),
        topology,
        architecture="bert-base",
    )
    compiler = TpuCompiler(job)
    for length in lengths:
        rows = tokens // length
        plain = kilobytes(compile_plain(job, rows, length), tokens)
        ours = kilobytes(compiler.compile(rows, length), tokens)
        ratio = ours[0] / plain[0]
        yield (
            f"| {rows} x {length} | {plain[0]:.0f} | {ours[0]:.0f} | {ratio:.2f}"
            f"{'' if ratio <= TARGET else ' (above the target)'} | {plain[1]:.0f} | {ours[1]:.0f} |"
        )


def distributions(tokens: int) -> dict[str, np.ndarray]:
    """Lengths of texts in tokens, drawn with a seed; together about `tokens` of them."""
    rng = np.random.default_rng(0)

    def lognormal(median: float, sigma: float) -> np.ndarray:
        count = int(tokens / (median * np.exp(sigma**2 / 2)))
        return np.clip(np.round(median * rng.lognormal(0, sigma, count)), 3, POSITIONS).astype(int)

    return {
        "short lines, mean 20": lognormal(15, 0.75),
        "log-normal, median 90": lognormal(90, 0.8),
        "long documents": np.minimum(rng.integers(375, 1125, tokens // 500), POSITIONS),
    }


def batches_of(lengths: np.ndarray, shapes: BatchShapes) -> Counter[tuple[int, int]]:
    """How many batches of each shape, (rows, length), a run makes of texts of these lengths."""
    counts: Counter[tuple[int, int]] = Counter()
    megabatches = np.cumsum(lengths) // MEGABATCH_TOKENS
    for megabatch in np.split(lengths, np.flatnonzero(np.diff(megabatches)) + 1):
        plan = plan_batches(megabatch, shapes)
        counts.update(zip(plan.rows.tolist(), plan.lengths.tolist(), strict=True))
    return counts


def costs_of(job: ChipJob) -> dict[tuple[int, int], np.ndarray]:
    """What a batch of each shape, (rows, length) on each chip, costs a chip.

    Prints a line for each shape.

    Returns:
      tokens, operations, bytes accessed, bytes in HBM, and seconds at the roofline.
    """
    costs = {}
    for report in TpuCompiler(job).reports(largest=False):
        bounds = Bounds.of(report, job.topology, job.precision)
        print(
            f"{'packed' if job.packed else 'padded'} {report.rows} x {report.length}: "
            f"{report.flops_per_token / 1e6:.1f} Mflop and {report.bytes_per_token / 1e3:.0f} kB "
            f"for each token of the batch, bound by "
            f"{'arithmetic' if bounds.arithmetic <= bounds.memory else 'memory'}",
            flush=True,
        )
        in_hbm = report.hbm_bytes_per_token or np.nan
        of_token = 1, report.flops_per_token, report.bytes_per_token, in_hbm, 1 / bounds.roofline
        costs[report.rows, report.length] = report.rows * report.length * np.array(of_token)
    return costs


def packing_table(chip: str) -> Iterator[str]:
    """Yields the lines of the table; figures are for each token of a text, on one chip."""
    settings = {"layers": [-1, -2, -3, -4], "combine": "sum", "max_seq_length": POSITIONS}

    def plan(grid: str, packing: bool) -> ChipJob:
        wanted = ExtractConfig.of(settings | {"packing": packing})
        return plan_job(wanted, f"{chip}:{grid}", architecture="bert-base")

    costs = {packing: costs_of(plan("1x1", packing)) for packing in (False, True)}
    yield "| lengths | chips | rows | tokens computed | Mflop | kB accessed | in HBM | roofline |"
    yield "|---|---|---|---|---|---|---|---|"
    for title, lengths in distributions(4_000_000).items():
        for grid, packing in itertools.product(("1x1", "2x4"), costs):
            job = plan(grid, packing)
            chips = job.topology.chips
            batches = batches_of(lengths, job.batch_shapes)
            total = sum(n * costs[packing][rows // chips, s] for (rows, s), n in batches.items())
            computed, flops, accessed, in_hbm, seconds = total * chips / lengths.sum()
            yield (
                f"| {title} | {chips} | {'packed' if packing else 'padded'} | {computed:.3f} "
                f"| {flops / 1e6:.1f} | {accessed / 1e3:.0f} | {in_hbm / 1e3:.0f} "
                f"| {1 / seconds:,.0f} |"
            )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "lengths", metavar="LENGTH", nargs="*", type=int, help="lengths; default 64 128 256 512"
    )
    parser.add_argument("--topology", default="v5e:2x2", help="chips; default v5e:2x2")
    parser.add_argument("--packing", action="store_true", help="compare padded and packed rows")
    parser.add_argument("--tokens", default=16384, type=int, help="tokens of a batch on one chip")
    options = parser.parse_args()
    lengths = options.lengths or [64, 128, 256, 512]
    if options.packing:
        lines = packing_table(options.topology.partition(":")[0])
    else:
        lines = rows_of_table(options.topology, options.tokens, lengths)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
