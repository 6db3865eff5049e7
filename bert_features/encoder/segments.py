"""The texts of packed rows as masks, see `config.packing`.

Shape legend: `B` rows, `S` tokens, `M` MAX_SEGMENTS.
"""

from keras import ops

from bert_features.config.packing import MAX_SEGMENTS
from bert_features.encoder.types import Tensor


def within_segments(segments: Tensor) -> Tensor:
    """Which tokens a token attends to: int32 [B, S] -> int32 [B, S, S], 1 in its own text."""
    return ops.cast(ops.expand_dims(segments, 2) == ops.expand_dims(segments, 1), "int32")


def tokens_of_segments(segments: Tensor) -> Tensor:
    """Which tokens a text has: int32 [B, S] -> bool [B, M, S]."""
    numbers = ops.arange(1, MAX_SEGMENTS + 1, dtype="int32")
    return ops.expand_dims(segments, 1) == ops.expand_dims(numbers, 1)
