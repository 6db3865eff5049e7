"""How far two sets of states are from each other, and how far they may be.

Shape legend: `K` layers, including the sum below the first block; `T` tokens of a text; `H`
hidden_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bert_features.encoder.step import Precision

Measure = Literal["deviation", "cosine"]


@dataclass(frozen=True)
class Tolerance:
    """What a comparison allows.

    Attributes:
      measure: the largest `deviation` of a value, or the lowest `cosine` of two vectors.
      limit: the largest deviation, or the lowest cosine, that passes.
    """

    measure: Measure
    limit: float

    def allows(self, measured: float) -> bool:
        """Whether a measured value passes; NaN never does."""
        if self.measure == "deviation":
            return measured <= self.limit
        return measured >= self.limit


# The contract of "same text, same vector".
TOLERANCES: dict[Precision, Tolerance] = {
    "float32": Tolerance("deviation", 1e-5),
    "bfloat16": Tolerance("cosine", 0.999),
}


@dataclass(frozen=True)
class Comparison:
    """What a check compares.

    Attributes:
      compared: a description.
      expected: [K, T, H] for each text.
      received: the same.
      scale: what a deviation is divided by if it is above 1: the expected `value`, or the largest
        value of the expected `vector`. Rounding errors between different programs grow with the
        latter.
    """

    compared: str
    expected: Sequence[np.ndarray]
    received: Sequence[np.ndarray]
    scale: Literal["value", "vector"] = "value"

    def measure(self, measure: Measure) -> float:
        """The largest deviation, or the lowest cosine; NaN if a value is NaN.

        Raises:
          ValueError: expected and received differ in shape.
        """
        worst = []
        for expected, received in zip(self.expected, self.received, strict=True):
            if expected.shape != received.shape:
                raise ValueError(f"expected states {expected.shape}, received {received.shape}")
            wide, other = expected.astype(np.float64), received.astype(np.float64)
            if measure == "deviation":
                worst.append(_deviation(wide, other, self.scale))
            else:
                worst.append(-_cosines(wide, other).min())
        largest = float(np.max(worst))
        return largest if measure == "deviation" else -largest


def _deviation(expected: np.ndarray, received: np.ndarray, scale: str) -> float:
    size = np.abs(expected)
    if scale == "vector":
        size = size.max(axis=-1, keepdims=True)
    return float((np.abs(expected - received) / np.maximum(size, 1)).max())


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[…, H], […, H] -> […]; 0 for a vector of zeros."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines: np.ndarray = (a * b).sum(axis=-1) / np.maximum(norms, np.finfo(np.float64).tiny)
    return cosines
