"""How far two sets of vectors are from each other, and how far they may be.

Two float32 values agree if they differ by at most

    ABSOLUTE + relative * the largest magnitude in the expected vector

The largest of the vector counts, and not the value itself: each value comes from sums over its
whole vector, so a small value next to a large one has the rounding errors of the large one.

Shape legend: `K` layers, including the sum below the first block; `T` tokens of a text; `H`
hidden_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bert_features.encoder.step import Precision

Measure = Literal["deviation", "cosine"]

# The contract of "same text, same vector".
ABSOLUTE = 1e-5
# Between runs of one program: another batch, another padding, another device of the same kind. A
# float32 has an epsilon of 1.2e-7, and a sum over H values in another order is uncertain by about
# sqrt(H) / 2 of it: 14 epsilons for a width of 768, 16 for 1024. This is 17. With all-MiniLM-L6-v2
# the sum of its last four layers uses half of what is allowed (2.3e-5 in a vector that reaches 17).
BETWEEN_RUNS = 2e-6
# Between programs (runtimes, kinds of devices, float64 encoders) each operation rounds otherwise.
BETWEEN_PROGRAMS = 1e-5


@dataclass(frozen=True)
class Tolerance:
    """What a comparison allows.

    Attributes:
      measure: the largest `deviation` of a value, see `deviation`; or the lowest `cosine` of two
        vectors.
      limit: the largest deviation, or the lowest cosine, that passes.
    """

    measure: Measure
    limit: float

    def allows(self, measured: float) -> bool:
        """Whether a measured value passes; NaN never does."""
        if self.measure == "deviation":
            return measured <= self.limit
        return measured >= self.limit

    def describe(self, measured: float) -> str:
        """A measured value with its limit."""
        if self.measure == "deviation":
            return f"deviation {measured:.1e}, at most {self.limit:g}"
        return f"cosine {measured:.6f}, at least {self.limit:g}"


TOLERANCES: dict[Precision, Tolerance] = {
    "float32": Tolerance("deviation", ABSOLUTE),
    "bfloat16": Tolerance("cosine", 0.999),
}


@dataclass(frozen=True)
class Comparison:
    """What a check compares.

    Attributes:
      expected: [K, T, H] for each text.
      relative: what a value may differ by, relative to the largest of its vector: `BETWEEN_RUNS`
        or `BETWEEN_PROGRAMS`.
    """

    compared: str
    expected: Sequence[np.ndarray]
    received: Sequence[np.ndarray]
    relative: float = BETWEEN_RUNS

    def measure(self, measure: Measure) -> float:
        """The largest deviation, or the lowest cosine; NaN if a value is NaN.

        Raises ValueError if expected and received differ in shape.
        """
        worst = []
        for expected, received in zip(self.expected, self.received, strict=True):
            if expected.shape != received.shape:
                raise ValueError(f"expected states {expected.shape}, received {received.shape}")
            wide, other = expected.astype(np.float64), received.astype(np.float64)
            if measure == "deviation":
                worst.append(deviation(wide, other, self.relative))
            else:
                worst.append(-_cosines(wide, other).min())
        largest = float(np.max(worst))
        return largest if measure == "deviation" else -largest


def deviation(expected: np.ndarray, received: np.ndarray, relative: float = BETWEEN_RUNS) -> float:
    """The largest difference, such that `ABSOLUTE` is the limit of what agrees; NaN if one is NaN.

    A difference between arrays [..., H] is divided by 1 + relative / ABSOLUTE * the largest
    magnitude of its vector.
    """
    expected, received = np.asarray(expected, np.float64), np.asarray(received, np.float64)
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    allowed = 1 + relative / ABSOLUTE * largest
    return float((np.abs(expected - received) / allowed).max())


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[…, H], […, H] -> […]; 0 for a vector of zeros."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines: np.ndarray = (a * b).sum(axis=-1) / np.maximum(norms, np.finfo(np.float64).tiny)
    return cosines
