"""The part that the readers of flat columns share: .npz and HDF5."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.formats import reader
from bert_features.formats.columns import (
    LEVELS,
    TEXT,
    columns_of,
    convert_ids,
    convert_to_batch,
    cumulate_bytes,
    cut_columns,
    levels_of,
)
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord


class ColumnFile(reader.BatchFile):
    """A features file of flat columns that can be cut anywhere."""

    _open_columns: Mapping[str, Any] | None = None

    @abstractmethod
    def _open(self) -> Mapping[str, Any]:
        """Opens the columns, by name, until `close`; taking a slice of one reads it."""

    @property
    def _columns(self) -> Mapping[str, Any]:
        if self._open_columns is None:
            self._open_columns = self._open()
        return self._open_columns

    def close(self) -> None:
        """Closes the columns."""
        self._open_columns = None

    def _batches(self, wanted: range) -> Iterator[FeatureBatch]:
        for start, stop in self._chunks(wanted):
            yield self._batch(start, stop)

    def _record(self, number: int) -> FeatureRecord:
        return next(self._batch(number, number + 1).records(self.features))

    def _all_ids(self) -> np.ndarray:
        return convert_ids(self._columns["unique_ids"][:].tolist(), self.id_type)

    def _ragged(self, feature: Feature, wanted: range) -> tuple[np.ndarray, np.ndarray | None]:
        values = self._columns[feature.name]
        if feature.level == "sequence":
            return values[wanted.start : wanted.stop], None
        splits = self._columns[LEVELS[feature.level].splits]
        row_splits = np.array(splits[wanted.start : wanted.stop + 1])
        first = row_splits[0]
        return values[int(first) : int(row_splits[-1])], row_splits - first

    def _blocks(
        self, feature: Feature, wanted: range
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for start, stop in self._chunks(wanted):
            yield self._ragged(feature, range(start, stop))

    def _chunks(self, wanted: range) -> Iterator[tuple[int, int]]:
        """Ranges of examples that are small enough to read at once."""
        start = wanted.start
        while start < wanted.stop:
            limit = min(start + reader.CHUNK_RECORDS, wanted.stop)
            splits = {
                level: np.asarray(self._columns[LEVELS[level].splits][start : limit + 1])
                for level in levels_of(self.features)
            }
            sizes = cumulate_bytes(splits, self.features, limit - start)
            fitting = int(np.searchsorted(sizes, reader.CHUNK_BYTES, side="right")) - 1
            stop = start + max(fitting, 1)
            yield start, stop
            start = stop

    def _batch(self, start: int, stop: int) -> FeatureBatch:
        """Examples start:stop, copied out of the file."""
        part = cut_columns(self._columns, self.features, start, stop)
        for name, column in columns_of(self.features, self.id_type).items():
            # .npz and HDF5 return texts as arrays.
            is_text = column.dtype == TEXT
            part[name] = part[name].tolist() if is_text else np.array(part[name])
        part["unique_ids"] = convert_ids(part["unique_ids"], self.id_type)
        return convert_to_batch(part, self.features)


def check_columns(columns: Mapping[str, Any], features: tuple[Feature, ...], id_type: str) -> int:
    """Checks that the columns fit together and returns the number of records.

    Raises:
      ValueError, KeyError: they do not fit, or one is missing.
    """
    records = len(columns["unique_ids"])
    rows = {"sequence": records, "splits": records + 1}
    for level in levels_of(features):
        rows[level] = int(columns[LEVELS[level].splits][-1])
    for name, expected in columns_of(features, id_type).items():
        column = columns[name]
        count = rows[expected.rows]
        shape = (count,) if expected.width is None else (count, expected.width)
        # The dtype of texts depends on the format.
        is_text = expected.dtype == TEXT and column.dtype.kind in "OU"
        dtype = str(column.dtype) if is_text else expected.dtype
        if (column.shape, str(column.dtype)) != (shape, dtype):
            raise ValueError(
                f"column {name} is {column.dtype} {column.shape}, expected {dtype} {shape}"
            )
    return records
