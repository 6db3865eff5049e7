"""Records by number and by id, and their conversions: what a file and each slice of it can do."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import numpy as np

from bert_features.errors import OutputError
from bert_features.formats.conversions import (
    convert_to_dataset,
    convert_to_frame,
    convert_to_table,
)
from bert_features.formats.records import Feature, FeatureRecord
from bert_features.formats.source import RecordSource


class Records(ABC):
    """Consecutive records of a features file, each read when it is asked for.

    `records[i]` is a record. `records[a:b]` is a view, which reads nothing yet. Iterating yields
    the records in order, any number of times.
    """

    @property
    @abstractmethod
    def _source(self) -> RecordSource:
        """The file that holds the records."""

    @property
    @abstractmethod
    def _range(self) -> range:
        """The numbers of the records in the file."""

    @property
    @abstractmethod
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""

    @property
    def ids(self) -> np.ndarray:
        """The id of each record: int64 [N], or str (dtype object) [N]; no feature is read."""
        return self._source._ids[self._range.start : self._range.stop]

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[FeatureRecord]:
        return self._source.guarded(self._source._records(self._range))

    @overload
    def __getitem__(self, index: SupportsIndex) -> FeatureRecord: ...

    @overload
    def __getitem__(self, index: slice) -> "FeatureView": ...

    def __getitem__(self, index: SupportsIndex | slice) -> "FeatureRecord | FeatureView":
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise OutputError(
                    f"a slice of records has step 1. Received: {index.step}; take the records "
                    "you want one by one"
                )
            part = self._range[index]
            return FeatureView(self._source, part or range(part.start, part.start))
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"records are taken by position or by slice. Received: {index!r}; by_id finds an id"
            ) from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"record {number} is outside [{-len(self)}, {len(self) - 1}]")
        return self._source.record_at(self._range[number])

    def by_id(self, unique_id: int | str) -> FeatureRecord:
        """The record with an id; the first one where several have it.

        The ids of a file are read once.

        Raises:
          OutputError: no record has this id.
        """
        number = self._source._number_of(unique_id, self._range)
        if number is None:
            part = self._range
            is_part = isinstance(self, FeatureView)
            within = f" in records {part.start} to {part.stop - 1}" if is_part else ""
            raise OutputError(
                f"no example of {self._source.path}{within} has the id {unique_id!r}; "
                f"its {len(self)} ids are of type {self._source.id_type}, see `.ids`"
            )
        return self._source.record_at(number)

    def ragged(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """All vectors of one feature, as one array.

        Returns:
          values, [T, D], [W, D] or [N, D] by the feature's level, and row_splits, int64 [N + 1]:
          the vectors of example i are values[row_splits[i]:row_splits[i + 1]]. For a sequence
          feature row_splits is None, and the vector of example i is values[i]. From an .npz file
          values is a memory map; from an .arrow file it is a view of the mapped file where the
          records lie in a single record batch, else a copy.

        Raises:
          OutputError: there is no such feature, or the file is damaged.
        """
        feature = self._feature(name)
        with self._source._one_clear_error():
            return self._source._ragged(feature, self._range)

    def blocks(self, name: str) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """All vectors of one feature, a bounded part at a time.

        Only this feature is read, except in JSON lines and TFRecords, whose records are read whole.

        Yields:
          For some of the records, in order: values and row_splits, as `ragged` returns them.

        Raises:
          OutputError: there is no such feature, or the file is damaged.
        """
        return self._source.guarded(self._source._blocks(self._feature(name), self._range))

    def _feature(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        allowed = ", ".join(feature.name for feature in self.features)
        raise OutputError(f"{self._source.path} has no feature {name!r}; allowed: {allowed}")

    def to_dataset(self) -> Any:
        """A `tf.data.Dataset` with a dict per example, read as it is consumed.

        Keys are the columns of the Parquet layout: `unique_id` int64 or string []; `tokens` string
        [S] and `token_ids` int32 [S] (not from JSON lines, which have none); `words` string [M],
        `word_starts`, `word_ends`, `word_type_ids`, `word_num_pieces` int32 [M]; and each feature,
        [S, D], [M, D] or [D] in its own dtype. S and M vary: batch with `padded_batch` or
        `ragged_batch`. A damaged file raises a `tf.errors.OpError` with the reader's message.
        """
        return convert_to_dataset(self._source, self._range)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table` with the columns and the metadata of the Parquet format, in memory.

        bfloat16, which Arrow lacks, becomes float32, exactly. `token_ids` of JSON lines, which have
        none, are null.
        """
        return convert_to_table(self._source, self._range)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, a row per example, with the columns of the Parquet format.

        Cells are NumPy arrays: features [S, D], [M, D] or [D], tokens and words str (dtype object)
        [S] or [M], their numbers int32. `token_ids` of JSON lines are None.

        Raises:
          MissingExtraError: pandas is not installed.
        """
        return convert_to_frame(self._source, self._range)


class FeatureView(Records):
    """Consecutive records of a features file; `file[a:b]` makes one.

    Attributes:
      metadata: the metadata of the file.
      features: the features of each record, in order.
    """

    def __init__(self, source: RecordSource, records: range) -> None:
        self._of = source
        self._records = records
        self.metadata = source.metadata

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""
        return self._of.features

    @property
    def _source(self) -> RecordSource:
        return self._of

    @property
    def _range(self) -> range:
        return self._records

    def __repr__(self) -> str:
        features = ", ".join(feature.describe() for feature in self.features)
        records = f"{self._records.start}:{self._records.stop}"
        return f"<records {records} of {self._of.path}: {features}>"
