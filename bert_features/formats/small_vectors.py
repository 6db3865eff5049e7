"""Small vectors: one byte, or one bit, for each dimension; made from float32, and turned back.

int8 cuts the range of a dimension, from its least to its largest value, into 255 steps: a value is
the number of steps from the least one, less 128, and what is outside the range becomes its end.
Binary has a 1 for each value above zero, packed into bytes as `numpy.packbits` does.

Shape legend: `N` vectors, `D` width, `E` bytes that hold D bits.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bert_features.config.features import SMALL_DTYPES, Scale
from bert_features.formats.records import Feature, FeatureBatch

STEPS, _LOWEST = 255, -128  # of int8


def find_scale(blocks: Iterable[np.ndarray], width: int) -> Scale:
    """The least and the largest value of each of `width` dimensions; zeros without a finite vector.

    The blocks are floats [N, D] each. A vector with NaN or an infinity does not count.
    """
    ends = np.zeros((0, width), np.float32)
    for block in blocks:
        finite = block[np.isfinite(block).all(axis=1)].astype(np.float32)
        values = np.concatenate([ends, finite])
        ends = np.stack([values.min(axis=0), values.max(axis=0)]) if len(values) else ends
    return tuple(map(tuple, (ends if len(ends) else np.zeros((2, width))).tolist()))


def quantize(batch: FeatureBatch, features: Sequence[Feature]) -> FeatureBatch:
    """A batch whose small vectors are float32 [N, D], with int8 [N, D] and uint8 [N, E] instead."""
    arrays = batch.features
    small = {f.name: encode(arrays[f.name], f) for f in small_ones(features)}
    return batch.with_features(small) if small else batch


def encode(values: np.ndarray, feature: Feature) -> np.ndarray:
    """Vectors float32 [N, D] as a small dtype of a feature: int8 [N, D] or uint8 [N, E]."""
    if feature.dtype == "binary":
        return np.packbits(values > 0, axis=1)
    least, step = _steps(feature)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN, which are counted
        numbers = np.rint((values - least) / np.where(step > 0, step, 1)) + _LOWEST
    within = np.nan_to_num(np.clip(numbers, _LOWEST, _LOWEST + STEPS))
    return np.asarray(within, np.int8)


def count_clipped(batch: FeatureBatch, features: Sequence[Feature]) -> tuple[np.ndarray, int]:
    """The values of each example that int8 will clip, int64 [N], of how many that it will take.

    Clipped are those more than half a step outside the scale.
    """
    clipped, total = np.zeros(len(batch), np.int64), 0
    for feature in (each for each in features if each.dtype == "int8"):
        least, largest = np.array(feature.scale)
        # In another batch the last digits differ, also for the texts of the scale.
        half = (largest - least) / (2 * STEPS)
        low, high = (least - half).astype(np.float32), (largest + half).astype(np.float32)
        values, splits = batch.features[feature.name], batch.row_splits(feature)
        outside = ((values < low) | (values > high)).sum(axis=1)
        clipped += outside if splits is None else np.diff(np.append(0, outside.cumsum())[splits])
        total += values.size
    return clipped, total


def restore(values: np.ndarray, feature: Feature) -> np.ndarray:
    """The vectors of a feature: small ones as float32 [N, D], others as they are.

    int8 is turned back to within half a step; of bits, 1 becomes 1 and 0 becomes -1.
    """
    if feature.dtype == "binary":
        bits = np.unpackbits(values, axis=1, count=feature.width)
        return np.asarray(np.where(bits, np.float32(1), np.float32(-1)))
    if feature.dtype == "int8":
        least, step = _steps(feature)
        return np.asarray(least + (values.astype(np.float32) - _LOWEST) * step)
    return values


def _steps(feature: Feature) -> tuple[np.ndarray, np.ndarray]:
    """The least value of each dimension, and its step: float32 [D] each."""
    least, largest = np.array(feature.scale)
    return least.astype(np.float32), ((largest - least) / STEPS).astype(np.float32)


def small_ones(features: Sequence[Feature]) -> list[Feature]:
    """The features of small vectors."""
    return [feature for feature in features if feature.dtype in SMALL_DTYPES]
