"""The tokens that a token attends to: its own text in packed rows (`config.packing`), its reach.

Shape legend: `B` rows, `S` tokens, `M` MAX_PACKED_TEXTS.
"""

from keras import ops

from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.encoder.types import Tensor


def within_texts(text_numbers: Tensor) -> Tensor:
    """Which tokens a token attends to: int32 [B, S] -> int32 [B, S, S], 1 in its own text."""
    return ops.cast(ops.expand_dims(text_numbers, 2) == ops.expand_dims(text_numbers, 1), "int32")


def tokens_of_texts(text_numbers: Tensor) -> Tensor:
    """Which tokens a text has: int32 [B, S] -> bool [B, M, S]."""
    numbers = ops.arange(1, MAX_PACKED_TEXTS + 1, dtype="int32")
    return ops.expand_dims(text_numbers, 1) == ops.expand_dims(numbers, 1)


def within_reach(mask: Tensor, reach: int) -> Tensor:
    """Which of the tokens of a mask a token attends to, at most `reach` to either side.

    int32 [B, S] or [B, S, S] -> [B, S, S]; the mask itself where no row is longer than the reach.
    """
    length = mask.shape[-1]
    if length is not None and length <= reach + 1:
        return mask
    places = ops.arange(ops.shape(mask)[-1], dtype="int32")
    near = ops.abs(ops.expand_dims(places, 1) - ops.expand_dims(places, 0)) <= reach
    query_mask = mask if len(mask.shape) == 3 else ops.expand_dims(mask, 1)
    return ops.where(near, query_mask, ops.zeros_like(query_mask))
