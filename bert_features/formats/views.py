"""What a features file and a part of it have in common: records by number and id, conversions."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from bert_features.errors import OutputError
from bert_features.formats import conversions
from bert_features.formats.records import Feature, FeatureRecord

if TYPE_CHECKING:
    from bert_features.formats.reader import FeatureFile


class Records(ABC):
    """Consecutive records of a features file, each read when it is asked for.

    `records[i]` is a record, `records[a:b]` a view that reads nothing by itself; iterating yields
    the records in order, as often as one likes.
    """

    @property
    @abstractmethod
    def _file(self) -> "FeatureFile":
        """The file they are of."""

    @property
    @abstractmethod
    def _range(self) -> range:
        """Which of the file's records they are."""

    @property
    @abstractmethod
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""

    @property
    def ids(self) -> np.ndarray:
        """The id of each record: int64 [N], or str (dtype object) [N]; no feature is read."""
        return self._file._ids[self._range.start : self._range.stop]

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[FeatureRecord]:
        return self._file._iterate(self._range)

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
            return FeatureView(self._file, part or range(part.start, part.start))
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"record {number} is outside [{-len(self)}, {len(self) - 1}]")
        return self._file._record_at(self._range[number])

    def by_id(self, unique_id: int | str) -> FeatureRecord:
        """The record of an id; the first of them where several have it.

        The ids are read once for the file, from their own column.

        Raises:
          OutputError: no record has this id.
        """
        number = self._file._number_of(unique_id, self._range)
        if number is None:
            of_type = self._file.id_type
            raise OutputError(
                f"no example of {self._file.path} has the id {unique_id!r}; "
                f"its {len(self)} ids are of type {of_type}, see `.ids`"
            )
        return self._file._record_at(number)

    def ragged(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """All vectors of one feature, as one array.

        Returns:
          values, [T, D], [W, D] or [N, D] by the feature's level (of an .npz file a memory map),
          and row_splits, int64 [N + 1], so that those of example i are
          values[row_splits[i]:row_splits[i + 1]]; None for a sequence feature, where they are
          values[i].

        Raises:
          OutputError: there is no such feature, or the file is damaged.
        """
        feature = next((f for f in self.features if f.name == name), None)
        if feature is None:
            allowed = ", ".join(f.name for f in self.features)
            raise OutputError(f"{self._file.path} has no feature {name!r}; allowed: {allowed}")
        return self._file._read_ragged(feature, self._range)

    def to_dataset(self) -> Any:
        """A `tf.data.Dataset` of a dict per example, read as it is consumed.

        Keys are those of the Parquet layout: `unique_id` int64 or string []; `tokens` string [S]
        and `token_ids` int32 [S] (not from JSON lines, which have none); `words` string [M],
        `word_starts`, `word_ends`, `word_type_ids`, `word_num_pieces` int32 [M]; and each feature,
        [S, D], [M, D] or [D] in its own dtype. S and M vary: batch it with `padded_batch` or
        `ragged_batch`. A damaged file ends it with a `tf.errors.OpError` that holds our message.
        """
        return conversions.convert_to_dataset(self)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table` with the columns and the metadata of the Parquet format, in memory.

        bfloat16, which Arrow has not, becomes float32, exactly. `token_ids` of JSON lines, which
        have none, are null.
        """
        return conversions.convert_to_table(self)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, a row per example, with the columns of the Parquet format.

        Cells are NumPy arrays: features [S, D], [M, D] or [D], tokens and words str (dtype object)
        [S] or [M], their numbers int32. `token_ids` of JSON lines are None.

        Raises:
          MissingExtraError: pandas is not installed.
        """
        return conversions.convert_to_frame(self)


class FeatureView(Records):
    """Consecutive records of a features file; `file[a:b]` makes one.

    Attributes:
      metadata: the file's.
      features: the features of each record, in order.
    """

    def __init__(self, file: "FeatureFile", records: range) -> None:
        self._of = file
        self._records = records
        self.metadata = file.metadata

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""
        return self._of.features

    @property
    def _file(self) -> "FeatureFile":
        return self._of

    @property
    def _range(self) -> range:
        return self._records

    def __repr__(self) -> str:
        return f"<records {self._records.start}:{self._records.stop} of {self._of.path}>"
