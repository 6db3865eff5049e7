"""Records of a file by their number: what each format implements, and what every file then has."""

import contextlib
import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from bert_features.config.recipe import RECIPE, Recipe
from bert_features.errors import BertFeaturesError, OutputError, first_line
from bert_features.files import locate
from bert_features.formats.columns import convert_ids, value_dtype
from bert_features.formats.headers import Header
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, splits_of

_T = TypeVar("_T")


class RecordSource(ABC):
    """A features file as views and conversions use it; `reader.FeatureFile` is what users see.

    A format implements the methods that raise whatever they like on damaged bytes; the methods
    that others call turn every such failure into one `OutputError`.
    """

    format: str
    metadata: dict[str, Any]
    has_token_ids: bool = True
    # Whether the values of a batch are views of the file, which is then read when they are used.
    is_mapped: ClassVar[bool] = False
    # What has no checksum that is compared as it is read.
    _unchecked: ClassVar[tuple[str, ...]] = ()
    _noun: ClassVar[str] = "file"  # what `path` is, in messages
    _watched: str = ""  # the file of a folder that is written with any other

    def __init__(self, path: Path) -> None:
        self.path: Any = locate(path)
        self._check_readable()
        self._opened_as = self._identity()
        with self._one_clear_error():
            header = self._read_header()
            self.metadata, self._features, self.id_type, self._count, self._is_whole = header

    def _check_readable(self) -> None:
        """Refuses a path that cannot be opened."""
        try:
            if self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
                raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
            with self.path.open("rb"):
                pass
        except OSError as error:
            raise OutputError(f"cannot read {self.path}: {error.strerror}") from error

    def _identity(self) -> tuple[int, ...] | None:
        """What another file in its place does not share; None if nothing, or an address, is there.

        Files are opened when they are used, by libraries that take a path.
        """
        with contextlib.suppress(OSError):
            status = Path(self.path, self._watched).stat()
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return None

    # What a format implements; any exception means that the file is damaged.

    @abstractmethod
    def _read_header(self) -> Header:
        """Reads the header."""

    @abstractmethod
    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        """These records in order, as batches of a bounded size.

        With `only`, columns by the names of `columns_of` are read; some formats read all anyway.
        """

    def _records(self, records: range) -> Iterator[FeatureRecord]:
        """These records in order."""
        for batch in self._batches(records):
            yield from batch.records(self.features)

    def _record(self, number: int) -> FeatureRecord:
        """One record, whose arrays keep nothing but itself in memory."""
        return next(self._records(range(number, number + 1)))

    def _blocks(
        self, feature: Feature, records: range
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """See `views.FeatureView.blocks`."""
        for batch in self._batches(records, [feature.name]):
            yield batch.features[feature.name], batch.row_splits(feature)

    def _ragged(self, feature: Feature, records: range) -> tuple[np.ndarray, np.ndarray | None]:
        """See `views.FeatureView.ragged`."""
        blocks = list(self._blocks(feature, records))
        if self.is_mapped and len(blocks) == 1:
            return blocks[0]
        empty = np.empty((0, feature.stored_width), value_dtype(feature.dtype))
        values = np.concatenate([empty, *(values for values, _ in blocks)])
        if feature.is_sequence:
            return values, None
        lengths = [np.diff(splits) for _, splits in blocks if splits is not None]
        return values, splits_of(np.concatenate([np.zeros(0, np.int64), *lengths]))

    def _all_ids(self) -> np.ndarray:
        """The id of each record; features are not read."""
        batches = self._batches(self._range, ["unique_ids"])
        none = convert_ids([], self.id_type)
        return np.concatenate([none, *(batch.unique_ids for batch in batches)])

    def _verify(self) -> tuple[str, ...]:
        """Reads everything, and returns `texts` or `values` if they have no checksum."""
        for _ in self._batches(self._range):
            pass
        return self._unchecked

    def _count_records(self) -> int:
        """Number of records in a file whose header does not record it."""
        raise ValueError("its header does not record the number of records")

    # What views and conversions call.

    def batches(
        self, columns: Sequence[str], records: range | None = None
    ) -> Iterator[FeatureBatch]:
        """Some columns of all records, or of these, a bounded part at a time; see `_batches`."""
        return self.guarded(self._batches(self._range if records is None else records, columns))

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""
        return self._features

    @property
    def recipe(self) -> Recipe:
        """See `views.FeatureView.recipe`."""
        return Recipe.from_json(str(self.path), self.metadata.get(RECIPE))

    @property
    def _range(self) -> range:
        """The numbers of all records."""
        if self._count is None:
            with self._one_clear_error():
                self._count = self._count_records()
        return range(self._count)

    @cached_property
    def _ids(self) -> np.ndarray:
        with self._one_clear_error():
            ids = self._all_ids()
            self._check_count(len(ids))
            ids.flags.writeable = False  # every caller gets the same array
            return ids

    @cached_property
    def _numbers(self) -> dict[int | str, int]:
        """The first record of each id."""
        ids = self._ids.tolist()
        return dict(zip(reversed(ids), range(len(ids) - 1, -1, -1), strict=True))

    def _number_of(self, unique_id: int | str, within: range) -> int | None:
        """The first record within a range that has this id; None where there is none."""
        number = self._numbers.get(unique_id)
        if number is None or number in within:
            return number
        # The first record with this id lies outside `within`; another may lie inside.
        matches = np.flatnonzero(self._ids[within.start : within.stop] == unique_id)
        return within[int(matches[0])] if matches.size else None

    def guarded(self, items: Iterator[_T]) -> Iterator[_T]:
        """Items that are read from the file, with one clear error where it is damaged."""
        with self._one_clear_error():
            yield from items

    def record_at(self, number: int) -> FeatureRecord:
        """The record of a number."""
        with self._one_clear_error():
            return self._record(number)

    # What formats use.

    @contextlib.contextmanager
    def _one_clear_error(self) -> Iterator[None]:
        try:
            if self._identity() not in (None, self._opened_as):
                raise OutputError(
                    f"{self.path} was replaced or changed after it was opened; open it again"
                )
            yield
        except (BertFeaturesError, MemoryError):
            raise
        except Exception as error:
            # Every type, not a list of some: damaged bytes make parsers raise almost anything.
            reason = first_line(error)
            raise OutputError(
                f"cannot read {self.path} as {self.format}: it is damaged, cut short, "
                f"or not a features {self._noun} of bert_features ({reason})"
            ) from error

    def _check_count(self, seen: int) -> None:
        if self._count is not None and seen != self._count:
            raise ValueError(f"it holds {seen} records where {self._count} were written")
