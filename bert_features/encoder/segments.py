"""Which tokens a token attends to: those of its text in packed rows (`config.packing`), a window.

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


def within_window(mask: Tensor, window: int) -> Tensor:
    """Which of the tokens of a mask a token attends to, at most `window` to either side.

    int32 [B, S] or [B, S, S] -> [B, S, S]; the mask itself where no row is longer than the window.
    """
    length = mask.shape[-1]
    if length is not None and length <= window + 1:
        return mask
    places = ops.arange(ops.shape(mask)[-1], dtype="int32")
    near = ops.abs(ops.expand_dims(places, 1) - ops.expand_dims(places, 0)) <= window
    by_query = mask if len(mask.shape) == 3 else ops.expand_dims(mask, 1)
    return ops.where(near, by_query, ops.zeros_like(by_query))
