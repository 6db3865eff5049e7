"""Attention as one kernel for TPUs, in Pallas (JAX alone): no score leaves the chip's fast memory.

The parts that meet in a kernel are those of FlashAttention (Dao et al. 2022, arXiv:2205.14135):
scores, powers and their sums stay in fast memory, and the division by the sums comes after the
product with the values. A row of BERT is short, so all its keys fit at once, and no maximum has to
be corrected. How Pallas runs a kernel: https://docs.jax.dev/en/latest/pallas/tpu/index.html

It was compiled for TPUs, and computed on CPUs by Pallas's interpreter. No TPU has run it.

Shape legend: `B` rows, `A` heads, `D` head size, `S` tokens; `K` keys and `Q` queries of one step
of the grid; `P` heads of one step; `T` tokens of a block, `N` blocks of a packed row.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.encoder.attention.lanes import OTHER_ROW, Lanes
from bert_features.encoder.attention.plain import Heads, Texts
from bert_features.encoder.types import Tensor

# Queries of one step of the grid, if a row has more.
_QUERIES = 512
# The scores of more keys do not fit in fast memory beside one another.
_LONGEST = 1024
# The query, key, value and output of one step may take this much; they are there twice, as the next
# step's arrive while this one computes. A v5e allows a kernel 16 MiB of its VMEM by default.
_STEP_BYTES = 4 << 20
# Keys and queries of packed rows are taken in blocks of this many, the lanes of a TPU's registers.
_BLOCK = 128


class Pallas(Lanes):
    """The form for TPUs by one kernel, which knows no nearness.

    Each step of the grid takes a row, or G rows that lie side by side, with some of the heads and
    up to 512 of the queries. Scores and softmax are float32; the factors of the second product have
    the dtype of the values. Packed rows need no bias; there blocks of keys are skipped where none
    has a text of the queries, or all are beyond the reach.
    """

    def context(self, heads: Heads, bias: Tensor, texts: Texts) -> Tensor:
        """See `Lanes`; float32 or bfloat16, and a bias [B * G, S / G] of S tokens side by side."""
        if texts.nearness is not None:
            return super().context(heads, bias, texts)
        query, text_numbers = heads[0], texts.numbers
        batch, count, size, length = query.shape
        if text_numbers is None and length > _LONGEST and length % _BLOCK == 0:
            text_numbers = jnp.where(bias < 0, 0, 1)  # one text a row
        queries = min(length, _QUERIES)
        if text_numbers is not None:
            queries = length if length % _BLOCK else _BLOCK
        together = _heads_together(count, (3 * length + queries) * size * query.dtype.itemsize)
        query_blocks = pl.BlockSpec(
            (None, together, size, queries), lambda b, a, q, *_: (b, a, 0, q)
        )
        key_blocks = pl.BlockSpec((None, together, size, length), lambda b, a, q, *_: (b, a, 0, 0))
        row_blocks = pl.BlockSpec((None, 1, length), lambda b, a, q, *_: (b, 0, 0))
        step, per_key, *ranges = (
            (functools.partial(_step, row=bias.shape[-1]), bias)
            if text_numbers is None
            else (_packed_step, *_block_ranges(text_numbers, queries))
        )
        call = pl.pallas_call(
            functools.partial(step, scale=self.scale, reach=self.reach),
            out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(ranges),
                grid=(batch, count // together, pl.cdiv(length, queries)),
                in_specs=[row_blocks, query_blocks, key_blocks, key_blocks],
                out_specs=query_blocks,
            ),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 3),
            cost_estimate=pl.CostEstimate(
                flops=4 * batch * count * size * length**2,
                transcendentals=batch * count * length**2,
                bytes_accessed=4 * query.size * query.dtype.itemsize + 4 * batch * length,
            ),
            name="attention",
        )
        # One dimension: three would be padded, and there is little memory for scalars.
        ranges = [jnp.reshape(x, -1) for x in ranges]
        return call(*ranges, jnp.reshape(per_key, (batch, 1, length)), *heads)


def _heads_together(heads: int, bytes_of_one: int) -> int:
    """The largest divisor of `heads` that fits one step of the grid; at least 1."""
    fitting = max(_STEP_BYTES // bytes_of_one, 1)
    return max(n for n in range(1, heads + 1) if heads % n == 0 and n <= fitting)


def _step(
    bias_ref: Any, query_ref: Any, key_ref: Any, value_ref: Any, out_ref: Any, *, scale: float,
    row: int, reach: int | None,
) -> None:  # fmt: skip
    """One step of the grid: bias [1, K]; query, output [P, D, Q]; key, value [P, D, K]."""
    heads, _, queries = query_ref.shape
    keys = key_ref.shape[-1]
    first = pl.program_id(2) * queries
    visible = jnp.transpose(jnp.broadcast_to(bias_ref[...], (8, keys)))[:, :1]  # [K, 1]
    if row != keys:
        key_rows = _places(keys, queries, 0) // row
        query_rows = (_places(keys, queries, 1) + first) // row
        visible = jnp.where(key_rows == query_rows, visible, OTHER_ROW)
    if reach is not None:
        distance = _places(keys, queries, 0) - (_places(keys, queries, 1) + first)
        visible = jnp.where(jnp.abs(distance) <= reach, visible, OTHER_ROW)

    def head(number: Any, carry: None) -> None:
        query, key, value = (ref[number] for ref in (query_ref, key_ref, value_ref))
        scores = _product(key, query, 0) * scale + visible  # [K, Q]
        powers = jnp.exp(scores - jnp.max(scores, axis=0, keepdims=True))
        total = jnp.sum(powers, axis=0, keepdims=True)  # [1, Q]
        context = _product(value, powers.astype(value.dtype), 1) / total
        out_ref[number] = context.astype(out_ref.dtype)
        return carry

    jax.lax.fori_loop(0, heads, head, None)


def _block_ranges(text_numbers: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The texts that a kernel compares, and the blocks of keys that have texts of the queries.

    int32 [B, S], ascending, with 0 for the padding at the end -> float32 [B, S], ascending to the
    end; and int32 [B, 2, N], the first of these blocks for each block of queries, and the end.
    """
    texts = jnp.where(text_numbers > 0, text_numbers, MAX_PACKED_TEXTS + 1)
    first, last = texts[:, ::block], texts[:, block - 1 :: block]  # [B, N]
    start = jnp.sum(last[:, None, :] < first[:, :, None], axis=-1, dtype="int32")
    end = jnp.sum(first[:, None, :] <= last[:, :, None], axis=-1, dtype="int32")
    return texts.astype("float32"), jnp.stack([start, end], axis=1)


def _packed_step(
    ranges_ref: Any, text_ref: Any, query_ref: Any, key_ref: Any, value_ref: Any, out_ref: Any, *,
    scale: float, reach: int | None,
) -> None:  # fmt: skip
    """One step of the grid: ranges [B * 2 * N]; texts [1, K]; the others as in `_step`, Q is T.

    What is known of the keys seen so far is corrected when a higher score comes, as in
    FlashAttention.
    """
    heads, size, block = query_ref.shape
    row, number = pl.program_id(0), pl.program_id(2)
    text = text_ref[:, _block(number, block)]  # [1, Q]

    def head(head: Any, carry: None) -> None:
        query = query_ref[head]

        def seen(number_of_keys: Any, state: Any) -> Any:
            highest, total, context = state
            keys = _block(number_of_keys, block)
            key_texts = jnp.transpose(jnp.broadcast_to(text_ref[:, keys], (8, block)))[:, :1]
            scores = _product(key_ref[head, :, keys], query, 0) * scale  # [T, Q]
            scores = jnp.where(key_texts == text, scores, OTHER_ROW)
            if reach is not None:
                distance = _places(block, block, 0) - _places(block, block, 1)
                distance += (number_of_keys - number) * block
                scores = jnp.where(jnp.abs(distance) <= reach, scores, OTHER_ROW)
            higher = jnp.maximum(highest, jnp.max(scores, axis=0, keepdims=True))
            powers, factor = jnp.exp(scores - higher), jnp.exp(highest - higher)
            total = total * factor + jnp.sum(powers, axis=0, keepdims=True)
            value = value_ref[head, :, keys]
            context = context * factor + _product(value, powers.astype(value.dtype), 1)
            return higher, total, context

        nothing = (
            jnp.full((1, block), OTHER_ROW, "float32"),
            *(jnp.zeros((rows, block), "float32") for rows in (1, size)),
        )
        at = 2 * row * pl.num_programs(2) + number
        first, end = ranges_ref[at], ranges_ref[at + pl.num_programs(2)]
        if reach is not None:
            first = jnp.maximum(first, jnp.maximum(number * block - reach, 0) // block)
            end = jnp.minimum(end, (number * block + block - 1 + reach) // block + 1)
        _, total, context = jax.lax.fori_loop(first, end, seen, nothing)
        out_ref[head] = (context / total).astype(out_ref.dtype)
        return carry

    jax.lax.fori_loop(0, heads, head, None)


def _places(keys: int, queries: int, axis: int) -> Any:
    """int32 [keys, queries]: the place of each key, or along axis 1 of each query."""
    return jax.lax.broadcasted_iota(jnp.int32, (keys, queries), axis)


def _block(number: Any, block: int) -> Any:
    """The places of one block of tokens."""
    return pl.ds(pl.multiple_of(number * block, block), block)


def _product(x: Any, y: Any, axis: int) -> Any:
    """The float32 product of two matrices over dimension `axis` of x and the first of y."""
    # A wish for more precision than the factors have is an error in a kernel.
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    return jax.lax.dot_general(
        x, y, (((axis,), (0,)), ((), ())), precision=exact, preferred_element_type=jnp.float32
    )
