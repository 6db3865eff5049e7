"""Small vectors: one byte, or one bit, for each dimension; made from float32, and turned back.

int8 cuts the range of a dimension, from its least to its largest value, into 255 steps: a value is
the number of steps from the least one, less 128, and what is outside the range becomes its end.
Binary has a 1 for each value above zero, packed into bytes as `numpy.packbits` does.

Shape legend: `N` vectors, `D` width, `E` bytes that hold D bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bert_features.config import output_specs
from bert_features.config.features import SMALL_DTYPES, Ranges
from bert_features.formats.headers import Header
from bert_features.formats.passport import STEPS, Passport
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord

_LOWEST = -128  # of int8


def find_ranges(blocks: Iterable[np.ndarray], width: int) -> Ranges:
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
    found = batch.features
    small = {f.name: _quantized(found[f.name], f) for f in _small(features)}
    return batch.with_features(small) if small else batch


def _quantized(values: np.ndarray, feature: Feature) -> np.ndarray:
    if feature.dtype == "binary":
        return np.packbits(values > 0, axis=1)
    least, step = _steps(feature)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN, which are counted
        numbers = np.rint((values - least) / np.where(step > 0, step, 1)) + _LOWEST
    within = np.nan_to_num(np.clip(numbers, _LOWEST, _LOWEST + STEPS))
    return np.asarray(within, np.int8)


def count_clipped(batch: FeatureBatch, features: Sequence[Feature]) -> tuple[np.ndarray, int]:
    """The values of each example that int8 will clip, int64 [N], of how many that it will take.

    Clipped are those more than half a step outside the ranges.
    """
    clipped, total = np.zeros(len(batch), np.int64), 0
    for feature in (each for each in features if each.dtype == "int8"):
        least, largest = np.array(feature.ranges)
        # In another batch the last digits differ, also for the texts of the calibration.
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
    least, largest = np.array(feature.ranges)
    return least.astype(np.float32), ((largest - least) / STEPS).astype(np.float32)


def _small(features: Sequence[Feature]) -> list[Feature]:
    return [feature for feature in features if feature.dtype in SMALL_DTYPES]


def as_floats(file: FeatureFile) -> FeatureFile:
    """The same file, whose small vectors are turned back as they are read."""
    return _Restored(file) if _small(file.features) else file


class _Restored(FeatureFile):
    """A features file whose small vectors come as float32."""

    def __init__(self, file: FeatureFile) -> None:
        self._file, self._stored, self.format = file, _small(file.features), file.format
        self.has_token_ids, self._watched = file.has_token_ids, file._watched
        super().__init__(file.path)

    @property
    def passport(self) -> Passport:
        """See `FeatureFile.passport`: of the vectors as they are stored."""
        return self._file.passport

    def texts(self) -> list[tuple[int, str | None]]:
        """See `FeatureFile.texts`."""
        return self._file.texts()

    def _check_readable(self) -> None:
        pass  # it is open

    def _read_header(self) -> Header:
        file, features = self._file, output_specs.as_floats(self._file.features)
        return Header(file.metadata, features, file.id_type, len(file), file._is_whole)

    def _batches(self, wanted: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        for batch in self._file._batches(wanted, only):
            found = batch.features
            stored = (f for f in self._stored if f.name in found)
            yield batch.with_features({f.name: restore(found[f.name], f) for f in stored})

    def _record(self, number: int) -> FeatureRecord:
        record = self._file._record(number)
        floats = {
            f.name: restore(np.atleast_2d(values), f).reshape(*values.shape[:-1], f.width)
            for f in self._stored
            for values in (record.features[f.name],)
        }
        return replace(record, features=record.features | floats)

    def _verify(self) -> tuple[str, ...]:
        return self._file._verify()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return as_floats, (self._file,)
