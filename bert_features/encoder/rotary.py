"""Rotary positions (Su et al. 2021, arXiv:2104.09864): a head's two halves are turned together.

Shape legend: `B` batch, `S` sequence, `A` heads, `D` head size, `G` rows side by side.
"""

from dataclasses import dataclass

import numpy as np
from keras import ops

from bert_features.encoder.types import Tensor

# A position below 8,192 has 13 bits, and float32 has 24: its product with 11 bits is exact.
_EXACT_BITS = 11


# A class of its own, not a tuple: Keras would cast its arrays to the dtype of the layer.
@dataclass(frozen=True)
class Rotation:
    """What turns queries and keys by their positions.

    Attributes:
      cosine: float32 [S, D / 2], or [B, S, D / 2] where each row has positions of its own.
      sine: the same shape.
    """

    cosine: Tensor
    sine: Tensor

    @classmethod
    def by(
        cls, positions: Tensor, theta: float, head_size: int, divisor: float = 1.0
    ) -> "Rotation":
        """The rotation by positions, int32 [S] or [B, S], with angles to the base theta, divided.

        A product in float32 would be off by 5e-4 at position 8,000. So full turns are taken off by
        an exact product first.
        """
        turns = theta ** (-np.arange(0, head_size, 2) / head_size) / (2 * np.pi) / divisor
        mantissa, exponent = np.frexp(turns)
        high = np.ldexp(np.round(np.ldexp(mantissa, _EXACT_BITS)), exponent - _EXACT_BITS)
        position = ops.expand_dims(ops.cast(positions, "float32"), -1)
        exact = position * high.astype(np.float32)
        part = exact - ops.floor(exact) + position * (turns - high).astype(np.float32)
        angle = part * np.float32(2 * np.pi)
        return cls(ops.cos(angle), ops.sin(angle))

    def turned(self, x: Tensor, *, heads_first: bool) -> Tensor:
        """[A, B, S, D] with the heads first, else [B, A, S, D] -> the same."""
        apart = len(self.cosine.shape) == 3 and not heads_first
        cosine, sine = (ops.expand_dims(v, 1) if apart else v for v in (self.cosine, self.sine))
        return _turned(x, cosine, sine, axis=-1)

    def turned_in_lanes(self, x: Tensor) -> Tensor:
        """[B / G, A, D, G * S] -> the same."""
        cosine, sine = (ops.swapaxes(v, -1, -2) for v in (self.cosine, self.sine))
        if len(cosine.shape) == 3:  # rows with positions of their own are not side by side
            cosine, sine = (ops.expand_dims(v, 1) for v in (cosine, sine))
        else:
            beside = x.shape[-1] // cosine.shape[-1]
            cosine, sine = (ops.tile(v, (1, beside)) for v in (cosine, sine))
        return _turned(x, cosine, sine, axis=-2)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor, axis: int) -> Tensor:
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=axis)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return ops.cast(ops.concatenate(turned, axis=axis), x.dtype)
