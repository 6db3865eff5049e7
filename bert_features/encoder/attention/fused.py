"""Attention as one kernel on a GPU: JAX's, which is cuDNN's, for an encoder in bfloat16.

https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html

Shape legend: `B` batch, `S` sequence, `A` heads, `D` head size.
"""

import jax
import jax.numpy as jnp

from bert_features.encoder.attention.plain import Attended, Heads, Plain, Texts
from bert_features.encoder.packed_texts import within_texts

# The widest head of cuDNN's kernel, and what divides its width.
_WIDEST, _MULTIPLE = 128, 8
# In shorter rows the operations that XLA compiles are faster: of 32 tokens by 5 % on an H100.
_LONG_ENOUGH = 64


class Fused(Plain):
    """The form of blocks without a reach for a GPU, on JAX; `Plain` in float32 and short rows.

    The real tokens of a row come first.
    """

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """See `Plain`; the context is [B, S, A, D]."""
        query = heads[0]
        fits = self.head_size <= _WIDEST and self.head_size % _MULTIPLE == 0
        if query.dtype == jnp.float32 or query.shape[2] < _LONG_ENOUGH or not fits:
            return super().attend(heads, texts)
        # A row that only fills a batch up attends to its first token: no key at all is no number.
        lengths = jnp.maximum(jnp.sum(texts.mask, axis=1), 1) if texts.numbers is None else None
        nearness = None if texts.nearness is None else texts.nearness[None].astype(query.dtype)
        query, key, value = (jnp.swapaxes(x, 1, 2) for x in heads)
        context = jax.nn.dot_product_attention(
            query,
            key,
            value,
            nearness,
            None if texts.numbers is None else within_texts(texts.numbers)[:, None] > 0,
            scale=self.scale,
            key_value_seq_lengths=lengths,
            implementation="cudnn",
        )
        return context, None
