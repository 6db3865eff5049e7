"""Local attention in blocks along the band, for rows much longer than its reach.

Shape legend: `B` rows, `S` tokens, `H` hidden, `A` heads, `D` head size, `T` tokens of a block, `N`
blocks of a row, the last of them filled up.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from keras import ops

from bert_features.encoder.attention.lanes import Lanes
from bert_features.encoder.attention.plain import Attended, Heads, Plain, Texts, attend
from bert_features.encoder.types import Tensor


@dataclass(frozen=True, kw_only=True)
class Banded(Plain):
    """The form of blocks, each of which attends as a row of its own by another form."""

    reach: int
    of_block: Plain
    heads_first: ClassVar[bool] = True

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """See `Plain`; the context is [B, S, H]."""
        (batch, length), size = ops.shape(texts.mask), self.heads * self.head_size
        parts, mask = blocks_of_band(heads, texts, self.reach)
        if not self.of_block.heads_first:
            parts = [ops.swapaxes(x, 0, 1) for x in parts]
        context, weights = self.of_block.within(parts, mask, texts.nearness)
        return ops.reshape(context, (batch, -1, size))[:, :length], weights


@dataclass(frozen=True, kw_only=True)
class BandedLanes(Lanes):
    """The same between the products of a TPU, whose rows are then never side by side."""

    reach: int
    side_by_side: ClassVar[bool] = False

    def attend(self, heads: Heads, texts: Texts) -> Attended:
        """See `Lanes`."""
        batch, length = ops.shape(texts.mask)
        heads = [ops.transpose(x, (1, 0, 3, 2)) for x in heads]
        parts, mask = blocks_of_band(heads, texts, self.reach)
        parts = [ops.swapaxes(x, 0, 1) for x in parts]
        context = attend(*parts, mask, self.scale, texts.nearness)  # [B * N, A, T, D]
        context = ops.reshape(context, (batch, -1, *context.shape[1:]))
        context = ops.transpose(context, (0, 2, 4, 1, 3))
        context = ops.reshape(context, (batch, self.heads * self.head_size, -1))
        return context[:, :, :length], None


def blocks_of_band(heads: Heads, texts: Texts, reach: int) -> tuple[Heads, Tensor]:
    """Each block of queries, with the keys in their reach, as a row of its own.

    Attention then computes 2 * S * T scores instead of S * S; T is twice the reach.
    [A, B, S, D] each -> [A, B * N, T, D], twice [A, B * N, 2 * T, D]; and the mask, int32
    [B * N, T, 2 * T].
    """
    query, key, value = heads
    size = 2 * reach
    missing = -ops.shape(query)[2] % size

    def blocks(x: Tensor, before: int = 0) -> Tensor:
        """[A, B, S, D] -> [A, B, N, T, D]; N + 1 blocks with tokens `before`."""
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
        halves = blocks(x, reach)
        return in_rows(ops.concatenate([halves[:, :, :-1], halves[:, :, 1:]], axis=3))

    numbers = ops.expand_dims(texts.mask if texts.numbers is None else texts.numbers, (0, 3))
    key_numbers = ops.swapaxes(in_reach(numbers)[0], 1, 2)
    seen = key_numbers > 0 if texts.numbers is None else asking(numbers)[0] == key_numbers
    distance = np.arange(2 * size) - reach - np.arange(size)[:, None]
    seen = ops.logical_and(seen, np.abs(distance) <= reach)
    return [asking(query), in_reach(key), in_reach(value)], ops.cast(seen, "int32")
