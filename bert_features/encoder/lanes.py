"""Attention with the tokens of a row in the last dimension, the lanes of a TPU's registers.

XLA's compiler for TPUs fuses freely, but copies an array where one product leaves it in another
layout than the next product needs. benchmarks/diary.md has the traffic that
these forms save.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `G` rows side by side.
"""

import keras
import numpy as np
from keras import ops

from bert_features.encoder import pallas_attention
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.kernels import MASK_BIAS
from bert_features.encoder.pallas_attention import OTHER_ROW
from bert_features.encoder.types import Tensor

# Tokens in the lanes of a TPU's registers; shorter rows lie side by side in them. Up to this many
# tokens it is cheaper to store the scores than to compute them twice
# (benchmarks/diary.md).
_LANES = 128
# From this length on, XLA computes both products of a feed-forward part in one pass on a TPU.
_LONG_ENOUGH = 256
# Rows of ones below the values: one tile, so that the values stay aligned.
_ONES = 8


def joined_rows(x: Tensor) -> Tensor:
    """Short rows as they pass through an encoder on a TPU: [B, S, H] -> [B * S / 256, 256, H].

    The tokens keep their order. It is x itself where S is at least 256, where 256 does not divide
    B * S, or where TensorFlow does not know both yet.
    """
    batch, length, size = x.shape
    if not batch or not length or length >= _LONG_ENOUGH or batch * length % _LONG_ENOUGH:
        return x
    return ops.reshape(x, (-1, _LONG_ENOUGH, size))


def rows_side_by_side(mask: Tensor) -> int:
    """Number of rows of [B, S], a divisor of B, side by side on a TPU: at most 128 tokens."""
    batch, length = mask.shape
    if not batch or not length:  # TensorFlow does not know them yet
        return 1
    return max(n for n in range(1, max(_LANES // length, 1) + 1) if batch % n == 0)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    segments: Tensor | None = None,
    window: int | None = None,
    nearness: Tensor | None = None,
) -> Tensor:
    """As `kernels.attend`, with the tokens of a row in the last dimension, the lanes of a TPU.

    Every product then leaves its result in the layout that the next one takes, and no array is
    transposed. G short rows lie side by side; each token attends to its own row. In packed rows,
    where G is 1, it attends to its own text.

    Up to 128 tokens the scores are written and read again, in the dtype of `query`. Beyond, they
    are computed twice, for their maximum and for the powers of the softmax, and XLA hands the
    powers to the next product without writing them. Everything in between is float32.
    `traced_for` can choose the Pallas kernel instead, which knows no `nearness`.

    Args:
      query: [B / G, A, D, G * S], as the result.
      key: [B / G, A, D, G * S].
      value: [B / G, A, D, G * S].
      mask: int32 [B, S], 1 = real.
      scale: factor of the scores.
      segments: int32 [B, S], the texts of packed rows.
      window: tokens to either side that a token attends to; by default all.
      nearness: [A, G * S, G * S], added to the scaled scores, see `RelativeBias`.
    """
    bias = ops.where(mask > 0, ops.cast(0.0, "float32"), ops.cast(MASK_BIAS, "float32"))
    if chosen_forms().pallas and nearness is None:
        return pallas_attention.attend(query, key, value, bias, scale, segments, window)
    others = bias, scale, segments, window, nearness
    scores = _scores_in_lanes(query, key, *others)
    highest = ops.max(scores, axis=-1, keepdims=True)
    if (query.shape[-1] or 0) <= _LANES:  # None: a length that TensorFlow does not know yet
        scores, highest = _materialised(ops.cast(scores, query.dtype), highest)
        powers = ops.exp(ops.cast(scores, "float32") - highest)
        weights = powers / ops.sum(powers, axis=-1, keepdims=True)
        return ops.einsum("baqk,badk->badq", ops.cast(weights, query.dtype), value)
    query, key, highest = _materialised(query, key, highest)
    scores = _scores_in_lanes(query, key, *others)
    return _weighted_mean(ops.exp(scores - highest), value)


def _scores_in_lanes(
    query: Tensor,
    key: Tensor,
    bias: Tensor,
    scale: float,
    segments: Tensor | None,
    window: int | None,
    nearness: Tensor | None,
) -> Tensor:
    """[B / G, A, D, G * S], [B / G, A, D, G * S], [B, S] -> float32 [B / G, A, G * S, G * S]."""
    scores = ops.cast(ops.einsum("badq,badk->baqk", query, key), "float32") * scale
    if nearness is not None:
        scores = scores + ops.cast(nearness, "float32")
    row, joined = bias.shape[-1], query.shape[-1]
    same: Tensor = None
    if segments is not None:
        same = (segments[:, :, None] == segments[:, None, :])[:, None]
    elif row == joined:
        scores = scores + bias[:, None, None, :]
    else:
        numbers = np.arange(joined) // row
        scores = scores + ops.reshape(bias, (-1, 1, 1, joined))
        same = numbers[:, None] == numbers
    if window is not None:
        places = np.arange(joined)
        near = np.abs(places[:, None] - places) <= window
        same = near if same is None else ops.logical_and(same, near)
    return scores if same is None else ops.where(same, scores, ops.cast(OTHER_ROW, "float32"))


def _weighted_mean(powers: Tensor, value: Tensor) -> Tensor:
    """The mean by weights that do not add up to 1: [B, A, S, S], [B, A, D, S] -> [B, A, D, S].

    On JAX one product gives the sum of the weighted values and that of the weights, by rows of ones
    below the values. So the weights have a single use, and XLA need not write them.
    """
    narrow = ops.cast(powers, value.dtype)
    if keras.backend.backend() != "jax":
        context = ops.cast(ops.einsum("baqk,badk->badq", narrow, value), "float32")
        return ops.cast(context / ops.sum(powers, axis=-1)[:, :, None, :], value.dtype)
    import jax.numpy as jnp

    size = value.shape[2]
    value = jnp.pad(value, [(0, 0), (0, 0), (0, _ONES), (0, 0)], constant_values=1)
    sums = jnp.einsum("baqk,badk->badq", narrow, value, preferred_element_type="float32")
    return ops.cast(sums[:, :, :size] / sums[:, :, size : size + 1], value.dtype)


def _materialised(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The same arrays, which XLA must then store as they are.

    It would otherwise store the wider arrays that they come from. TensorFlow has no public way to
    say so; there the compiler decides.
    """
    if keras.backend.backend() != "jax":
        return arrays
    import jax

    return tuple(jax.lax.optimization_barrier(arrays))
