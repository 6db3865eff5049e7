"""Attention head by head, so that each operation finds its input in a CPU's caches.

Shape legend: `B` batch, `S` sequence, `A` heads, `D` head size.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, cast

from keras import ops

from bert_features.encoder import kernels
from bert_features.encoder.attention.plain import Attended, Heads, Plain, attention_weights
from bert_features.encoder.forms import Forms, chosen_forms
from bert_features.encoder.types import Tensor


class ByHead(Plain):
    """The form for long rows on a CPU, on TensorFlow."""

    heads_first: ClassVar[bool] = True

    def within(self, heads: Heads, mask: Tensor, nearness: Tensor | None) -> Attended:
        """See `Plain`; the context is [B, S, A * D]."""
        return attend_by_head(*heads, mask, self.scale, nearness), None


@kernels.rounded_once(3)
def attend_by_head(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *others: Any) -> Tensor:
    """As `plain.attend`, head by head: [A, B, S, D] each -> [B, S, A * D].

    With the heads first they are taken apart without a copy, and put together by the one copy that
    their transposition would take. Rows without padding, as those of texts that are cut, need no
    pass over the scores for mask and scale.
    """
    by_head, heads = _traced_by_head(chosen_forms()), (query, key, value)
    if len(mask.shape) > 2:
        return by_head(heads, mask, *others)
    import tensorflow as tf

    scale, *rest = others
    return tf.cond(
        tf.reduce_all(mask > 0),
        lambda: by_head((query * ops.cast(scale, query.dtype), key, value), None, 1.0, *rest),
        lambda: by_head(heads, mask, *others),
    )


@functools.cache
def _traced_by_head(forms: Forms) -> Callable[..., Tensor]:
    """A graph function for these forms, which all layers share: tracing each takes 0.1 s."""
    import tensorflow as tf

    del forms
    return cast(Callable[..., Tensor], tf.function(_attend_by_head, autograph=False))


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
