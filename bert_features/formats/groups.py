"""What Parquet and Arrow share: examples stored in groups of a bounded size, one read at a time."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_features.formats.arrow_layout import convert_from_arrow
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import cumulate_bytes, find_parts, levels_of
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.machine.quiet_tensorflow import keep_pandas_from_arrow

# A reader holds one group at a time. A group is written once it reaches ENOUGH_BYTES or
# ENOUGH_ROWS, and stays below MAX_BYTES unless a single example exceeds that.
ENOUGH_BYTES = 16 << 20
ENOUGH_ROWS = 1024
MAX_BYTES = 64 << 20


class GroupWriter(FeatureWriter):
    """Collects batches into groups of about 16 MB or 1024 examples."""

    @abstractmethod
    def _write_group(self, batches: Sequence[FeatureBatch]) -> None:
        """Writes batches, of at least one example together, as one group."""

    def _open(self) -> None:
        keep_pandas_from_arrow()
        self._pending: list[FeatureBatch] = []
        self._pending_rows = self._pending_bytes = 0

    def _write(self, batch: FeatureBatch) -> None:
        for part in _parts(batch, self._features):
            size = sum(values.nbytes for values in part.features.values())
            if self._pending_bytes + size > MAX_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_rows += len(part)
            self._pending_bytes += size
            if self._pending_bytes >= ENOUGH_BYTES or self._pending_rows >= ENOUGH_ROWS:
                self._flush()

    def _finish(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._write_group(self._pending)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0


class GroupFile(FeatureFile):
    """Reads a file of groups, one at a time; the last one is kept for the next record.

    A format implements `_read_group`. When it reads the header, it sets `_starts`, int64 [groups +
    1]: the number of the first record of each group, then of all records.
    """

    _starts: np.ndarray

    _last: tuple[int, FeatureBatch] | None = None

    @abstractmethod
    def _read_group(self, group: int, columns: list[str] | None = None) -> Any:
        """A group as a `pyarrow.Table`, of all columns or of some."""

    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        names = None if only is None else ["unique_id" if n == "unique_ids" else n for n in only]
        for group, start, stop in find_parts(self._starts, records):
            table = self._read_group(group, names)
            yield convert_from_arrow(table, self.features).part(start, stop)

    def _record(self, number: int) -> FeatureRecord:
        ((group, start, stop),) = find_parts(self._starts, range(number, number + 1))
        if self._last is None or self._last[0] != group:
            self._last = group, convert_from_arrow(self._read_group(group), self.features)
        return next(self._last[1].part(start, stop).copy().records(self.features))

    def close(self) -> None:
        """Drops the group that was kept."""
        self._last = None


def _parts(batch: FeatureBatch, features: Sequence[Feature]) -> Iterator[FeatureBatch]:
    """A batch cut between examples into parts of at most `MAX_BYTES`, or of a single example."""
    splits = {level: batch.levels[level].splits for level in levels_of(features)}
    sizes = cumulate_bytes(splits, features, len(batch))
    start = 0
    while start < len(batch):
        stop = int(np.searchsorted(sizes, sizes[start] + MAX_BYTES, side="right")) - 1
        stop = max(stop, start + 1)
        yield batch if stop - start == len(batch) else batch.part(start, stop)
        start = stop
