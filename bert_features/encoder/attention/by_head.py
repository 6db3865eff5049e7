"""Attention on a CPU by TensorFlow: long rows head by head, and rows of any length in one graph.

Head by head each operation finds its input in the CPU's caches.

Shape legend: `B` batch, `S` sequence, `A` heads, `D` head size.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from keras import ops

from bert_features.encoder import kernels
from bert_features.encoder.attention.plain import (
    Attended,
    Heads,
    Plain,
    Texts,
    attend,
    attention_weights,
    mask_bias,
)
from bert_features.encoder.forms import Forms, chosen_forms
from bert_features.encoder.types import Tensor


class ByHead(Plain):
    """The form for long rows."""

    heads_first: ClassVar[bool] = True

    def within(self, heads: Heads, mask: Tensor, nearness: Tensor | None) -> Attended:
        """See `Plain`; the context is [B, S, A * D]."""
        return attend_by_head(*heads, mask, self.scale, nearness), None


class HeadsFirst(Plain):
    """The form for short rows beside `ByHead`: all heads together, in its order."""

    heads_first: ClassVar[bool] = True

    def within(self, heads: Heads, mask: Tensor, nearness: Tensor | None) -> Attended:
        """See `Plain`; the context is [B, S, A * D]."""
        if nearness is None and len(mask.shape) == 2:
            # Each head of a row as a row of one head: only so TensorFlow fuses scale and mask with
            # the product of the scores.
            _, _, length, size = ops.shape(heads[0])
            rows = [ops.reshape(x, (-1, 1, length, size)) for x in heads]
            context = attend(*rows, ops.tile(mask, (self.heads, 1)), self.scale)
            context = ops.reshape(context, ops.shape(heads[0]))
        else:
            mask = ops.expand_dims(mask, (0, 2)[: 4 - len(mask.shape)])
            nearness = None if nearness is None else ops.expand_dims(nearness, 1)
            context = attend(*heads, mask, self.scale, nearness)
        context = kernels.transpose(context, (1, 2, 0, 3))
        return ops.reshape(context, (*ops.shape(context)[:2], self.heads * self.head_size)), None


@dataclass(frozen=True, kw_only=True)
class ByLength(Plain):
    """The form of a graph for rows of any length.

    One graph, because each has its own copy of the weights as oneDNN arranges them.

    Attributes:
      limit: rows of more tokens take the form `long`, others `short`.
      short: a form with the heads first, whose context is [B, S, A * D].
      long: another.
    """

    limit: int
    short: Plain
    long: Plain
    heads_first: ClassVar[bool] = True

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """See `Plain`; the context is [B, S, A * D]."""
        attend_by_length = _traced_by_length(self, chosen_forms())
        return attend_by_length(heads, texts.mask, texts.numbers, texts.nearness), None


@functools.cache
def _traced_by_length(form: ByLength, forms: Forms) -> Callable[..., Tensor]:
    """A graph function for these forms, which all layers share: tracing each takes 0.1 s."""
    import tensorflow as tf

    del forms

    def attend_by_length(heads: Heads, mask: Tensor, *others: Tensor | None) -> Tensor:
        texts = Texts(mask, *others)
        return tf.cond(
            tf.shape(mask)[1] > form.limit,
            lambda: form.long.attend(heads, texts)[0],
            lambda: form.short.attend(heads, texts)[0],
        )

    # TensorFlow then rewrites it once, not once for each layer.
    attributes = {"_noinline": True}
    traced = tf.function(attend_by_length, autograph=False, experimental_attributes=attributes)
    return cast(Callable[..., Tensor], traced)


@kernels.rounded_once(3)
def attend_by_head(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *others: Any) -> Tensor:
    """As `plain.attend`, head by head: [A, B, S, D] each -> [B, S, A * D].

    With the heads first they are taken apart without a copy, and put together by the one copy that
    their transposition would take. Rows without padding, as those of texts that are cut, need no
    pass over the scores for mask and scale.
    """
    if len(mask.shape) > 2:
        return _attend_by_head((query, key, value), mask, *others)
    import tensorflow as tf

    scale, *rest = others
    scaled = query * ops.cast(scale, query.dtype), key, value
    return tf.cond(
        tf.reduce_all(mask_bias(mask, query.dtype) == 0),
        lambda: _attend_by_head(scaled, None, 1.0, *rest),
        lambda: _attend_by_head((query, key, value), mask, *others),
    )


def _attend_by_head(
    heads: Heads, mask: Tensor | None, scale: float, nearness: Tensor | None = None
) -> Tensor:
    if mask is not None and not chosen_forms().narrow:
        # Four dimensions, so that TensorFlow fuses scale and mask with the product of the
        # scores. With AVX2 alone the fused product is slower than the three operations.
        heads = [ops.expand_dims(x, 2) for x in heads]
    count = heads[0].shape[0]
    nearness_by_head = [None] * count if nearness is None else ops.unstack(nearness, count)
    contexts = [
        ops.matmul(attention_weights(query, key, mask, scale, near), value)
        for query, key, value, near in zip(
            *(ops.unstack(x, count) for x in heads), nearness_by_head, strict=True
        )
    ]
    context = ops.concatenate(contexts, axis=-1)
    return context if len(context.shape) == 3 else ops.squeeze(context, 1)
