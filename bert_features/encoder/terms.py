"""The weights of terms: the logits of a masked-LM head, pooled over the tokens of each row.

Neither the logits of all tokens nor, of many rows, all weights are there at once.

Shape legend: `B` batch, `S` sequence, `E` width of the embeddings, `V` vocab_size, `K` terms of a
row, `v` pieces of a part of the vocabulary, `b` rows of a part.
"""

from typing import NamedTuple

from keras import ops

from bert_features.encoder.in_parts import MOST_LOGITS, in_parts
from bert_features.encoder.types import Tensor


class Pooled(NamedTuple):
    """How the logits of a row become its weights.

    Attributes:
      mask: int32 [B, S], 1 for real tokens.
      pooling: `max` or `sum`, with `_log1p` behind it of a logarithm more.
      least: weights that are no larger are not counted.
    """

    mask: Tensor
    pooling: str
    least: float


def heaviest(hidden: Tensor, table: Tensor, bias: Tensor, top_k: int, pooled: Pooled) -> Tensor:
    """The K heaviest terms of each row, and the number of all.

    Args:
      hidden: float32 [B, S, E].
      table: float32 [V, E]; a logit is the product of its row with `hidden`, and the bias.
      bias: float32 [V].
      top_k: K.
      pooled: how they are pooled.

    Returns:
      float32 [B, 2 K + 1]: ids, in float32 exact below 2^24, then weights, the heaviest first; and
      the number of terms that weigh more than `least`.
    """
    mask, pooling, least = pooled
    top_k = min(top_k, bias.shape[0])
    is_sum = pooling.startswith("sum")
    if not is_sum:
        # A maximum does not change if padding repeats the first token.
        hidden = ops.where(ops.expand_dims(mask, -1) > 0, hidden, hidden[:, :1])
    real = ops.cast(mask, "float32")
    activate = _twice if pooling.endswith("_log1p") else _once

    def of_rows(rows: tuple[Tensor, ...]) -> tuple[Tensor]:
        states, real = rows
        size, length, width = ops.shape(states)
        flat = ops.reshape(states, (-1, width))

        def of_pieces(pieces: tuple[Tensor, ...]) -> tuple[Tensor]:
            logits = ops.matmul(flat, ops.transpose(pieces[0]))
            logits = ops.reshape(logits, (size, length, -1))
            if is_sum:
                values = activate(logits + pieces[1][:, 0]) * ops.expand_dims(real, -1)
                return (ops.transpose(ops.sum(values, axis=1)),)
            return (ops.transpose(ops.max(logits, axis=1)),)

        most = MOST_LOGITS // (size * length) + 1
        (weights,) = in_parts(of_pieces, most, table, ops.expand_dims(bias, -1))
        weights = ops.transpose(weights)
        # The activations rise, so that one after the maximum gives the same.
        weights = weights if is_sum else activate(weights + bias)
        weights = ops.where(ops.isnan(weights), float("inf"), weights)  # a sort would hide NaN
        values, ids = ops.top_k(weights, top_k)
        count = ops.sum(ops.cast(weights > least, "float32"), axis=1, keepdims=True)
        return (ops.concatenate([ops.cast(ids, "float32"), values, count], axis=1),)

    (terms,) = in_parts(of_rows, max(MOST_LOGITS // bias.shape[0], 1), hidden, real)
    return terms


def _once(logits: Tensor) -> Tensor:
    return ops.log1p(ops.maximum(logits, 0.0))


def _twice(logits: Tensor) -> Tensor:
    return ops.log1p(_once(logits))
