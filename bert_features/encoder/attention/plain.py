"""Attention by products of a whole batch, the form that works on any device.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `N` = B * S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import keras
from keras import ops

from bert_features.encoder import kernels
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.packed_texts import within_reach, within_texts
from bert_features.encoder.parts import Dense
from bert_features.encoder.rotary import Rotation
from bert_features.encoder.types import Tensor

Heads: TypeAlias = Sequence[Tensor]  # query, key and value
# The mean of the values for each token, and the weights in a form that keeps them.
Attended: TypeAlias = tuple[Tensor, Tensor | None]

# Added to the scores of masked positions. -10000, not -inf: the checkpoints were trained with it,
# and rows without any real token stay finite.
MASK_BIAS = -10000.0


# A class of its own, not a tuple: Keras would cast its arrays to the dtype of the layer.
@dataclass(frozen=True)
class Texts:
    """What attention takes into account of a batch.

    Attributes:
      mask: int32 [B, S], 1 = real; or on TensorFlow float32 [B, S], what is added to the scores.
      numbers: int32 [B, S], the `text_numbers` of packed rows.
      nearness: added to the scaled scores, see `RelativeBias`.
      unseen: whether tokens that no token attends to have a vector too, behind the real ones.
    """

    mask: Tensor
    numbers: Tensor | None = None
    nearness: Tensor | None = None
    unseen: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The form of a block's attention for any device; the others replace some of its steps.

    Attributes:
      heads: number of heads.
      head_size: width of a head.
      reach: tokens to either side that a token attends to; None for all.
      drop: dropout of the weights, for `Weighing`.
      heads_first: whether the heads are [A, B, S, D] each instead of [B, A, S, D].
    """

    heads: int
    head_size: int
    reach: int | None = None
    drop: Callable[[Tensor], Tensor] | None = None
    heads_first: ClassVar[bool] = False

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return float(self.head_size**-0.5)

    def project(self, x: Tensor, texts: Texts, projections: Sequence[Dense]) -> Heads:
        """Query, key and value of [N, H], or of [B', S', H] on a TPU; from one layer or three."""
        (batch, length), x = ops.shape(texts.mask), self._rows(x)
        order = (2, 3, 0, 1, 4) if self.heads_first else (2, 0, 3, 1, 4)
        heads: list[Tensor] = []
        parts = 3 // len(projections)
        for projection in projections:
            joined = ops.reshape(projection(x), (batch, length, parts, self.heads, self.head_size))
            heads += ops.unstack(kernels.transpose(joined, order), parts)
        return heads

    def turned(self, x: Tensor, rotation: Rotation) -> Tensor:
        """Queries or keys, turned by their positions."""
        return rotation.turned(x, heads_first=self.heads_first)

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """The context that `finish` takes."""
        mask = texts.mask if texts.numbers is None else within_texts(texts.numbers)
        if self.reach is not None:
            mask = within_reach(mask, self.reach)
        return self.within(heads, mask, texts.nearness)

    def within(self, heads: Heads, mask: Tensor, nearness: Tensor | None) -> Attended:
        """The context [B, S, A, D] by a mask of `attention_weights`."""
        context = attend(*heads, mask, self.scale, nearness)
        return kernels.transpose(context, (0, 2, 1, 3)), None

    def finish(self, context: Tensor, x: Tensor, output: Dense, residual: Tensor | None) -> Tensor:
        """The output layer's product with a context, and the residual: both of the shape of x."""
        if len(x.shape) == 2:
            return output(kernels.reshape_like(context, x), residual)
        residual = None if residual is None else self._rows(residual)
        return ops.reshape(output(self._rows(context), residual), ops.shape(x))

    def _rows(self, x: Tensor) -> Tensor:
        """[N, H], of any shape of the same tokens."""
        return x if len(x.shape) == 2 else ops.reshape(x, (-1, self.heads * self.head_size))


class Weighing(Plain):
    """The form that keeps the weights, [B, A, S, S], to be shown or dropped in part."""

    def within(self, heads: Heads, mask: Tensor, nearness: Tensor | None) -> Attended:
        """See `Plain`."""
        query, key, value = heads
        length = query.shape[2]
        if nearness is not None and nearness.shape[-1] != length:  # on a TPU, of rows side by side
            nearness = nearness[:, :length, :length]
        weights = attention_weights(query, key, mask, self.scale, nearness)
        kept = weights if self.drop is None else self.drop(weights)
        return kernels.transpose(kernels.matmul(kept, value), (0, 2, 1, 3)), weights


@kernels.rounded_once(2)
def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, nearness: Tensor | None = None
) -> Tensor:
    """Softmax of the scaled scores, without masked positions.

    Args:
      query: [B, A, S, D], or [B, S, D] for a single head.
      key: the same shape.
      mask: that of `Texts`; or int32 [B, S, S], 1 = this query attends to this key; None if all
        are real and the scale is part of the query.
      scale: factor of the scores.
      nearness: added to the scaled scores, see `RelativeBias`: [A, S, S], or [S, S] of one head.

    Returns:
      [B, A, S, S] or [B, S, S] of the dtype of `query`. The softmax is computed in float32; on a
      CPU by oneDNN's kernel, whose input has the dtype of `query`.
    """
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    if mask is None:
        return ops.softmax(_with(nearness, scores), axis=-1)
    # On a CPU the factor and the bias fuse with the product. Elsewhere the casts cost nothing,
    # because the compiler fuses them.
    dtype = scores.dtype if chosen_forms().on_cpu else "float32"
    bias = mask_bias(mask, dtype)
    # TensorFlow Lite has no `[:, None]`; so `pooling` does the same.
    bias = ops.expand_dims(bias, (1, 2)[: len(query.shape) - len(mask.shape)])
    scores = ops.cast(scores, dtype) * ops.cast(scale, dtype) + bias
    return ops.cast(ops.softmax(_with(nearness, scores), axis=-1), query.dtype)


def mask_bias(mask: Tensor, dtype: str) -> Tensor:
    """What a mask of `Texts` adds to the scores, in its shape."""
    if "float" in keras.backend.standardize_dtype(mask.dtype):
        return ops.cast(mask, dtype)
    # `where`, not a product: with two products to add, the rewrite may fuse the wrong one.
    return ops.where(mask > 0, ops.cast(0.0, dtype), ops.cast(MASK_BIAS, dtype))


def _with(nearness: Tensor | None, scores: Tensor) -> Tensor:
    """The sum, of the dtype of the scores; the scores themselves if there is nothing to add."""
    return scores if nearness is None else scores + ops.cast(nearness, scores.dtype)


@kernels.rounded_once(3)
def attend(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762): [B, A, S, D] each.

    The other arguments are those of `attention_weights`.
    """
    return ops.matmul(attention_weights(query, key, *others), value)
