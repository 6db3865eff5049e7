"""Which tokens a token attends to: those of its text in packed rows (`config.packing`), a window.

Shape legend: `B` rows, `S` tokens, `M` MAX_SEGMENTS; `A` heads, `D` head size, `T` tokens of a
block, `N` blocks of a row, the last of them filled up.
"""

import numpy as np
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


def is_banded(mask: Tensor, window: int | None, *, long_rows: bool = False) -> bool:
    """Whether rows are so long that attention within a window is computed in `blocks_of_band`.

    The mask is [B, S] or [B, S, S]; `long_rows` decides where TensorFlow does not know S yet.
    """
    if not window:  # a token that sees itself alone has no block
        return False
    length = mask.shape[-1]
    return long_rows if length is None else length > 4 * window


def blocks_of_band(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    segments: Tensor | None,
    window: int,
    *,
    heads_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each block of queries, with the keys in their reach, as a row of its own.

    Attention then computes 2 * S * T scores instead of S * S; T is twice the window.

    Args:
      query: [A, B, S, D].
      key: the same shape.
      value: the same shape.
      mask: int32 [B, S], 1 = real.
      segments: int32 [B, S], the texts of packed rows.
      window: tokens to either side that a token attends to.
      heads_first: whether A comes first in the results too.

    Returns:
      [A, B * N, T, D] or [B * N, A, T, D]; the same twice with 2 * T; and the mask, int32
      [B * N, T, 2 * T].
    """
    size = 2 * window
    missing = -ops.shape(query)[2] % size

    def blocks(x: Tensor, before: int = 0) -> Tensor:
        """[A, B, S, D] -> [A, B, N, T, D]; with a window at both ends N + 1 instead of N."""
        filled = ops.pad(x, [[0, 0], [0, 0], [before, before + missing], [0, 0]])
        heads, batch, _, width = ops.shape(x)
        return ops.reshape(filled, (heads, batch, -1, size, width))

    def in_rows(x: Tensor) -> Tensor:
        heads, _, _, tokens, width = ops.shape(x)
        return ops.reshape(x, (heads, -1, tokens, width))

    def asking(x: Tensor) -> Tensor:
        """[A, B, S, D] -> [A, B * N, T, D]."""
        return in_rows(blocks(x))

    def in_reach(x: Tensor) -> Tensor:
        """[A, B, S, D] -> [A, B * N, 2 * T, D]."""
        halves = blocks(x, window)
        return in_rows(ops.concatenate([halves[:, :, :-1], halves[:, :, 1:]], axis=3))

    texts = ops.expand_dims(mask if segments is None else segments, (0, 3))
    of_keys = ops.swapaxes(in_reach(texts)[0], 1, 2)
    seen = of_keys > 0 if segments is None else asking(texts)[0] == of_keys
    distance = np.arange(2 * size) - window - np.arange(size)[:, None]
    seen = ops.logical_and(seen, np.abs(distance) <= window)
    parts = asking(query), in_reach(key), in_reach(value)
    query, key, value = parts if heads_first else (ops.swapaxes(x, 0, 1) for x in parts)
    return query, key, value, ops.cast(seen, "int32")
