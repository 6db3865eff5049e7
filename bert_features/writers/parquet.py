"""Parquet: one row per example, one column per feature; `arrow` says which columns.

The metadata is JSON in the file's schema metadata, under the key `bert_features`.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_features.records import Feature, FeatureBatch, FeatureRecord
from bert_features.writers.arrow import (
    METADATA_KEY,
    convert_from_arrow,
    convert_to_arrow,
    schema_of,
    splits_of,
    values_of,
)
from bert_features.writers.base import FeatureWriter
from bert_features.writers.columns import (
    LEVELS,
    convert_ids,
    convert_to_columns,
    convert_to_splits,
    copy_arrays,
    cumulate_bytes,
    cut_batch,
    levels_of,
)
from bert_features.writers.reader import BatchFile, Header, parse_metadata

# A row group is what a reader holds at once. It is written when it has one of the first two, and
# kept below the third, which a single example may exceed.
ENOUGH_BYTES = 16 << 20
ENOUGH_ROWS = 1024
MOST_BYTES = 64 << 20


class Writer(FeatureWriter):
    """Writes Parquet in row groups of about 16 MB or 1024 examples."""

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._schema = schema_of(self._features, self._id_type).with_metadata(
            {METADATA_KEY: json.dumps(self._metadata).encode()}
        )
        # Not of the features: their values hardly ever occur twice.
        levels = [LEVELS[level] for level in levels_of(self._features)]
        repetitive = [f"{name}.list.element" for level in levels for name in level.columns]
        self._pending: list[Any] = []
        self._pending_rows = self._pending_bytes = 0
        # Measured on 2 CPU cores: four features of N(0, 0.5), D=384, in memory 71 MB (float16) and
        # 142 MB (float32), MB/s written and size: none 143-297, 1.00; snappy 137-267, 1.00; zstd
        # 117-224, 0.92; BYTE_STREAM_SPLIT 124-282, 1.00, with zstd 126-216, 0.85. The time goes
        # into the nesting levels that Parquet keeps of every single value, whatever the encoding.
        self._parquet = pq.ParquetWriter(
            self._create(self._partial(self.path)),
            self._schema,
            compression="none",
            use_dictionary=repetitive,
            write_statistics=["unique_id"],
        )

    def _write(self, batch: FeatureBatch) -> None:
        for part in _parts(batch, self._features):
            size = _feature_bytes(part)
            if self._pending_bytes + size > MOST_BYTES:
                self._flush()
            self._pending.append(convert_to_arrow(part, self._features, self._schema))
            self._pending_rows += len(part)
            self._pending_bytes += size
            if self._pending_bytes >= ENOUGH_BYTES or self._pending_rows >= ENOUGH_ROWS:
                self._flush()

    def _finish(self) -> None:
        self._flush()
        self._parquet.close()

    def _abandon(self) -> None:
        self._pending = []
        self._parquet.close()

    def _flush(self) -> None:
        """Writes what is pending as one row group."""
        import pyarrow as pa

        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        self._parquet.write_table(table, row_group_size=self._pending_rows)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0


class File(BatchFile):
    """Reads Parquet, a row group at a time; the last one is kept for the next record."""

    format = "parquet"
    _parquet: Any = None
    _last: tuple[int, FeatureBatch] | None = None

    def _read_header(self) -> Header:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as parquet:
            schema = parquet.schema_arrow
            metadata, features, id_type = parse_metadata((schema.metadata or {})[METADATA_KEY])
            if not schema.equals(schema_of(features, id_type)):
                raise ValueError("its columns are not those its metadata lists")
            groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
            self._starts = convert_to_splits([group.num_rows for group in groups])
            return Header(metadata, features, id_type, parquet.metadata.num_rows)

    def _batches(self, wanted: range) -> Iterator[FeatureBatch]:
        for group, start, stop in self._groups(wanted):
            batch = convert_from_arrow(self._read_group(group), self.features, self.id_type)
            yield cut_batch(batch, self.features, start, stop)

    def _record(self, number: int) -> FeatureRecord:
        ((group, start, stop),) = self._groups(range(number, number + 1))
        if self._last is None or self._last[0] != group:
            table = self._read_group(group)
            self._last = group, convert_from_arrow(table, self.features, self.id_type)
        batch = cut_batch(self._last[1], self.features, start, stop)
        return next(copy_arrays(batch, self.features).records(self.features))

    def _ragged(self, feature: Feature, wanted: range) -> tuple[np.ndarray, np.ndarray | None]:
        values, lengths = [], []
        for group, start, stop in self._groups(wanted):
            table = self._read_group(group, [feature.name]).slice(start, stop - start)
            array = table[feature.name].combine_chunks()
            values.append(values_of(array, feature))
            if feature.level != "sequence":
                lengths.append(np.diff(splits_of(array)))
        empty = np.empty((0, feature.width), feature.dtype)
        joined = np.concatenate([empty, *values])
        if feature.level == "sequence":
            return joined, None
        return joined, convert_to_splits([int(n) for row in lengths for n in row])

    def _all_ids(self) -> np.ndarray:
        groups = list(range(len(self._starts) - 1))
        ids = self._file_at_hand.read_row_groups(groups, ["unique_id"])["unique_id"]
        return convert_ids(ids.to_pylist(), self.id_type)

    def close(self) -> None:
        """Closes the file and drops the row group that was kept."""
        self._last = None
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None

    @property
    def _file_at_hand(self) -> Any:
        import pyarrow.parquet as pq

        if self._parquet is None:
            self._parquet = pq.ParquetFile(self.path)
        return self._parquet

    def _read_group(self, group: int, columns: list[str] | None = None) -> Any:
        return self._file_at_hand.read_row_group(group, columns)

    def _groups(self, wanted: range) -> Iterator[tuple[int, int, int]]:
        """Row groups, and which of their rows are wanted."""
        if not wanted:
            return
        first = int(np.searchsorted(self._starts, wanted.start, side="right")) - 1
        for group in range(first, len(self._starts) - 1):
            begin, end = (int(bound) for bound in self._starts[group : group + 2])
            if begin >= wanted.stop:
                return
            if begin < end:
                yield group, max(wanted.start - begin, 0), min(wanted.stop, end) - begin


def _feature_bytes(batch: FeatureBatch) -> int:
    return sum(values.nbytes for values in batch.features.values())


def _parts(batch: FeatureBatch, features: Sequence[Feature]) -> Iterator[FeatureBatch]:
    """A batch cut between examples into parts of at most `MOST_BYTES`, or of a single example."""
    columns = convert_to_columns(batch, features)
    splits = {level: columns[LEVELS[level].splits] for level in levels_of(features)}
    sizes = cumulate_bytes(splits, features, len(batch))
    start = 0
    while start < len(batch):
        stop = int(np.searchsorted(sizes, sizes[start] + MOST_BYTES, side="right")) - 1
        stop = max(stop, start + 1)
        yield cut_batch(batch, features, start, stop)
        start = stop
