"""Parquet: one row per example, one column per feature; `arrow` says which columns.

The metadata is JSON in the file's schema metadata, under the key `bert_features`.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_features.formats.arrow import (
    METADATA_KEY,
    convert_from_arrow,
    convert_to_arrow,
    schema_of,
    splits_of,
    values_of,
)
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import (
    LEVELS,
    convert_ids,
    convert_to_columns,
    convert_to_splits,
    copy_arrays,
    cumulate_bytes,
    cut_batch,
    levels_of,
)
from bert_features.formats.headers import Header, parse_metadata
from bert_features.formats.parquet_pages import column_chunk, row_group, vector_pages
from bert_features.formats.reader import BatchFile
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.formats.thrift import I64, LIST, STRUCT, Struct, decode_struct, encode_struct

# A row group is what a reader holds at once. It is written when it has one of the first two, and
# kept below the third, which a single example may exceed.
ENOUGH_BYTES = 16 << 20
ENOUGH_ROWS = 1024
MOST_BYTES = 64 << 20

MAGIC = b"PAR1"
FOOTER_END = struct.Struct("<i4s")  # the footer's length, and the file's last bytes
# The fields of a column's metadata that say where in the file something is.
_OFFSETS = {9, 10, 11}


class Writer(FeatureWriter):
    """Writes Parquet in row groups of about 16 MB or 1024 examples.

    pyarrow writes the ids, tokens and words, and whatever describes the file; `parquet_pages` the
    features. Those are neither encoded nor compressed: zstd takes 8 % off their size and doubles
    the time, and hardly a value occurs twice.
    """

    def _open(self) -> None:
        self._schema = schema_of(self._features, self._id_type).with_metadata(
            {METADATA_KEY: json.dumps(self._metadata).encode()}
        )
        features = {feature.name for feature in self._features}
        self._others = [name for name in self._schema.names if name not in features]
        self._pending: list[FeatureBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._footer = decode_footer(encode_table(self._schema.empty_table()))
        self._groups: list[bytes] = []
        self._file = self._create(self._partial(self.path))
        self._position = 0
        self._append(MAGIC)

    def _write(self, batch: FeatureBatch) -> None:
        for part in _parts(batch, self._features):
            size = _feature_bytes(part)
            if self._pending_bytes + size > MOST_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_rows += len(part)
            self._pending_bytes += size
            if self._pending_bytes >= ENOUGH_BYTES or self._pending_rows >= ENOUGH_ROWS:
                self._flush()

    def _finish(self) -> None:
        self._flush()
        rows, groups = self.records, (STRUCT, self._groups)
        footer = encode_struct(self._footer | {3: (I64, rows), 4: (LIST, groups)})
        self._append(footer + FOOTER_END.pack(len(footer), MAGIC))

    def _abandon(self) -> None:
        self._pending = []

    def _flush(self) -> None:
        """Writes what is pending as one row group."""
        if not self._pending:
            return
        start = self._position
        columns = self._append_others()
        columns += [self._append_feature(feature) for feature in self._features]
        self._groups.append(row_group(columns, offset=start, rows=self._pending_rows))
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    def _append_others(self) -> list[Struct]:
        """Writes the columns that are no features, by way of a file of their own."""
        import pyarrow as pa

        batches = [convert_to_arrow(part, self._features, self._schema) for part in self._pending]
        file = encode_table(pa.Table.from_batches(batches, self._schema).select(self._others))
        moved = self._position - len(MAGIC)
        self._append(file[len(MAGIC) : footer_start(file)])
        (group,) = decode_footer(file)[4][1][1]
        columns: list[Struct] = group[1][1][1]
        for column in columns:
            metadata = column[3][1]
            for field in _OFFSETS & metadata.keys():
                metadata[field] = (I64, metadata[field][1] + moved)
        return columns

    def _append_feature(self, feature: Feature) -> Struct:
        start = self._position
        num_values = 0
        for part in self._pending:
            splits = _splits(part, feature)
            for page in vector_pages(part.features[feature.name], splits):
                for data in page.parts:
                    self._append(data)
                num_values += page.num_values
            self._raise_failure()
        size = self._position - start
        return column_chunk(feature, offset=start, size=size, num_values=num_values)

    def _append(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._position += len(data)


def encode_table(table: Any) -> bytes:
    """A `pyarrow.Table`, of ids and then lists that repeat themselves, as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(len(table), 1),
        compression="none",
        write_statistics=["unique_id"],
        write_page_index=False,  # its places in the file would have to be moved too
        use_dictionary=[f"{name}.list.element" for name in table.column_names[1:]],
    )
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def footer_start(file: bytes) -> int:
    """Where the footer of a Parquet file begins."""
    length, _ = FOOTER_END.unpack(file[-FOOTER_END.size :])
    start: int = len(file) - FOOTER_END.size - length
    return start


def decode_footer(file: bytes) -> Struct:
    """The footer of a Parquet file."""
    return decode_struct(file, footer_start(file))


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


def _splits(batch: FeatureBatch, feature: Feature) -> np.ndarray | None:
    """Where the vectors of each example begin and end; None if each has one."""
    if feature.level == "sequence":
        return None
    splits: np.ndarray = getattr(batch, LEVELS[feature.level].batch).row_splits
    return splits


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
