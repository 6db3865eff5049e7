"""Attention with the tokens of a row in the last dimension, the lanes of a TPU's registers.

XLA's compiler for TPUs fuses freely, but copies an array where one product leaves it in another
layout than the next product needs. benchmarks/diary.md has the traffic that
these forms save.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `G` rows side by side.
"""

from collections.abc import Sequence
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from bert_features.encoder.attention.plain import Attended, Heads, Plain, Texts, mask_bias
from bert_features.encoder.parts import Dense
from bert_features.encoder.rotary import Rotation
from bert_features.encoder.types import Tensor

# Tokens in the lanes of a TPU's registers; shorter rows lie side by side in them. Up to this many
# tokens it is cheaper to store the scores than to compute them twice
# (benchmarks/diary.md).
_LANES = 128
# From this length on, XLA computes both products of a feed-forward part in one pass on a TPU.
_LONG_ENOUGH = 256
# Rows of ones below the values: one tile, so that the values stay aligned.
_ONES = 8
# The scores between rows that lie side by side, or texts of one row: their weights become 0.
OTHER_ROW = -1e30


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


class Lanes(Plain):
    """The form for TPUs: [B / G, A, D, G * S] each, in steps that XLA fuses.

    Every product then leaves its result in the layout that the next one takes, and no array is
    transposed. G short rows lie side by side; each token attends to its own row. In packed rows,
    where G is 1, it attends to its own text. The nearness is [A, G * S, G * S].
    """

    side_by_side: ClassVar[bool] = True

    def project(self, x: Tensor, texts: Texts, projections: Sequence[Dense]) -> Heads:
        """See `Plain`."""
        batch, length = ops.shape(texts.mask)
        if self.side_by_side and texts.numbers is None:
            beside = rows_side_by_side(texts.mask)
            batch, length = batch // beside, length * beside
        x = ops.reshape(x, (batch, length, x.shape[-1]))
        parts, heads = 3 // len(projections), []
        for projection in projections:
            weights = ops.split(projection.weight, parts, axis=-1)
            biases = ops.split(projection.bias_for(x), parts, axis=-1)
            for weight, bias in zip(weights, biases, strict=True):
                product = ops.einsum("bsh,hm->bms", x, weight) + bias[:, None]
                heads.append(ops.reshape(product, (batch, self.heads, self.head_size, length)))
        return heads

    def turned(self, x: Tensor, rotation: Rotation) -> Tensor:
        """See `Plain`."""
        return rotation.turned_in_lanes(x)

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """See `Plain`; the context is [B / G, H, G * S]."""
        context = self.context(heads, mask_bias(texts.mask, "float32"), texts)
        return ops.reshape(context, (-1, self.heads * self.head_size, context.shape[-1])), None

    def context(self, heads: Heads, bias: Tensor, texts: Texts) -> Tensor:
        """The context in the shape of a query; the bias has one value for each key, float32 [B, S].

        Up to 128 tokens the scores are written and read again, in the dtype of `query`. Beyond,
        they are computed twice, for their maximum and for the powers of the softmax, and XLA hands
        the powers to the next product without writing them. Everything in between is float32.
        """
        query, key, value = heads
        scores = self._scores(query, key, bias, texts)
        highest = ops.max(scores, axis=-1, keepdims=True)
        if (query.shape[-1] or 0) <= _LANES:  # None: a length that TensorFlow does not know yet
            scores, highest = _materialised(ops.cast(scores, query.dtype), highest)
            powers = ops.exp(ops.cast(scores, "float32") - highest)
            weights = powers / ops.sum(powers, axis=-1, keepdims=True)
            return ops.einsum("baqk,badk->badq", ops.cast(weights, query.dtype), value)
        query, key, highest = _materialised(query, key, highest)
        return _weighted_mean(ops.exp(self._scores(query, key, bias, texts) - highest), value)

    def finish(self, context: Tensor, x: Tensor, output: Dense, residual: Tensor | None) -> Tensor:
        """See `Plain`."""
        projected = ops.einsum("bms,mh->bsh", context, ops.convert_to_tensor(output.weight))
        attended = projected + ops.convert_to_tensor(output.bias_for(x))
        attended = ops.reshape(attended, ops.shape(x))
        return attended if residual is None else residual + attended

    def _scores(self, query: Tensor, key: Tensor, bias: Tensor, texts: Texts) -> Tensor:
        """float32 [B / G, A, G * S, G * S], from queries to keys."""
        scores = ops.cast(ops.einsum("badq,badk->baqk", query, key), "float32") * self.scale
        if texts.nearness is not None:
            scores = scores + ops.cast(texts.nearness, "float32")
        row, joined = bias.shape[-1], query.shape[-1]
        same: Tensor = None
        if texts.numbers is not None:
            same = (texts.numbers[:, :, None] == texts.numbers[:, None, :])[:, None]
        elif row == joined:
            scores = scores + bias[:, None, None, :]
        else:
            numbers = np.arange(joined) // row
            scores = scores + ops.reshape(bias, (-1, 1, 1, joined))
            same = numbers[:, None] == numbers
        if self.reach is not None:
            places = np.arange(joined)
            near = np.abs(places[:, None] - places) <= self.reach
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
