"""The parts that writers and readers of flat columns share: .npz and HDF5."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_features.config.levels import LEVELS
from bert_features.formats import reader
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import (
    columns_of,
    convert_ids,
    convert_to_batch,
    convert_to_columns,
    cumulate_bytes,
    levels_of,
)
from bert_features.formats.records import Feature, FeatureBatch


class ColumnWriter(FeatureWriter):
    """Writes flat columns, each of which grows with every batch."""

    needs_seeking = True

    @abstractmethod
    def _append(self, name: str, values: np.ndarray) -> None:
        """Appends to a column."""

    def _open(self) -> None:
        self._totals = dict.fromkeys(levels_of(self._features), 0)  # tokens and words so far
        for level in self._totals:
            self._append(LEVELS[level].splits, np.zeros(1, np.int64))

    def _write(self, batch: FeatureBatch) -> None:
        columns = convert_to_columns(batch)
        for level, total in self._totals.items():
            # Splits continue; the batch before has written where this one begins.
            splits = batch.levels[level].splits
            columns[LEVELS[level].splits] = splits[1:] + total
            self._totals[level] = total + int(splits[-1])
        for name in self._columns:
            self._append(name, columns[name])


class ColumnFile(reader.FeatureFile):
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

    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        whole = self._lazy(only)
        for start, stop in self._chunks(records, self.features, reader.CHUNK_RECORDS):
            # Copied out of the file; .npz and HDF5 return texts as arrays of other types.
            columns = {
                name: values.astype(object) if values.dtype.kind in "OU" else np.array(values)
                for name, values in convert_to_columns(whole.part(start, stop)).items()
            }
            yield convert_to_batch(columns, self.features)

    def _all_ids(self) -> np.ndarray:
        return convert_ids(self._columns["unique_ids"][:].tolist(), self.id_type)

    def _lazy(self, only: Sequence[str] | None) -> FeatureBatch:
        """All records, of all columns or of some, which are read where the batch is cut."""
        columns = columns_of(self.features, self.id_type)
        if only is not None:
            levels = {columns[name].rows for name in only}
            splits = {LEVELS[level].splits for level in levels & LEVELS.keys()}
            columns = {n: c for n, c in columns.items() if n in {*only, *splits}}
        return convert_to_batch({name: self._columns[name] for name in columns}, self.features)

    def _ragged(self, feature: Feature, records: range) -> tuple[np.ndarray, np.ndarray | None]:
        part = self._lazy([feature.name]).part(records.start, records.stop)
        return part.features[feature.name], part.row_splits(feature)

    def _blocks(
        self, feature: Feature, records: range
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        # No text: more records at once, as each block has a cost of its own.
        for start, stop in self._chunks(records, [feature], 16 * reader.CHUNK_RECORDS):
            yield self._ragged(feature, range(start, stop))

    def _chunks(
        self, records: range, features: Sequence[Feature], most: int
    ) -> Iterator[tuple[int, int]]:
        """Ranges of examples that are small enough to read these features at once."""
        start = records.start
        while start < records.stop:
            limit = min(start + most, records.stop)
            splits = {
                level: np.asarray(self._columns[LEVELS[level].splits][start : limit + 1])
                for level in levels_of(features)
            }
            sizes = cumulate_bytes(splits, features, limit - start)
            fitting = int(np.searchsorted(sizes, reader.CHUNK_BYTES, side="right")) - 1
            stop = start + max(fitting, 1)
            yield start, stop
            start = stop
