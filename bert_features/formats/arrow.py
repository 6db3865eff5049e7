"""Arrow IPC, the fast format: the layout of Parquet, uncompressed and mapped into memory.

One row per example, one column per feature; `arrow_layout` lists the columns. pyarrow alone writes
and reads it. The values lie in the file as in memory, in record batches of about 16 MB or 1024
examples. The metadata is JSON in the schema's metadata, under the key `bert_features`; what is
known at the end only stands, with all else, in the metadata of a last record batch without records.

Arrow has no checksums. So the metadata of each record batch has, under `bert_features_checksums`,
those of its columns (`ColumnChecksums`), as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bert_features.config.levels import TEXT
from bert_features.files.checksums import as_hex, checksum
from bert_features.formats.arrow_layout import (
    CHECKSUMS_KEY,
    METADATA_KEY,
    convert_from_arrow,
    convert_to_arrow,
    schema_of,
)
from bert_features.formats.columns import bytes_of, columns_of, convert_to_columns
from bert_features.formats.groups import GroupFile, GroupWriter
from bert_features.formats.headers import Header, parse_metadata
from bert_features.formats.records import Feature, FeatureBatch, splits_of

# The format begins with a word of 8 bytes; what follows, up to the footer, is a stream.
_STREAM_BEGINS = 8


class Writer(GroupWriter):
    """Writes an Arrow IPC file, uncompressed, so that it can be mapped into memory."""

    def _open(self) -> None:
        import pyarrow as pa

        super()._open()
        schema = schema_of(self._features, self._id_type)
        self._schema = schema.with_metadata({METADATA_KEY: json.dumps(self._metadata).encode()})
        self._stream = pa.ipc.new_file(self._file, self._schema)

    def _write_group(self, batches: Sequence[FeatureBatch]) -> None:
        self._append(FeatureBatch.join(batches))

    def _append(self, batch: FeatureBatch, **beside: Any) -> None:
        checksums = ColumnChecksums(self._features, self._id_type)
        checksums.add(batch)
        group = convert_to_arrow(batch, self._features, self._schema)
        beside = {CHECKSUMS_KEY.decode(): {"columns": checksums.of_columns()}, **beside}
        self._stream.write_batch(group, {key: json.dumps(value) for key, value in beside.items()})

    def _finish(self) -> None:
        super()._finish()
        # The schema stands at the beginning; what is known at the end stands beside a last batch.
        if json.dumps(self._metadata).encode() != self._schema.metadata[METADATA_KEY]:
            empty = convert_from_arrow(self._schema.empty_table(), self._features)
            self._append(empty, **{METADATA_KEY.decode(): self._metadata})
        self._stream.close()


class File(GroupFile):
    """Reads an Arrow IPC file through a memory map: what is not used is not read from the disk."""

    format = "arrow"
    is_mapped = True
    _map: Any = None
    _reader: Any = None

    def _read_header(self) -> Header:
        try:
            file = self._open_file()
            schema = file.schema
            # The footer has no counts; each record batch has its own at its beginning.
            groups = map(file.get_batch_with_custom_metadata, range(file.num_record_batches))
            counts, metadata = [], schema.metadata or {}
            for group, beside in groups:
                counts.append(group.num_rows)
                metadata = {**metadata, **(beside or {})}
        finally:
            self.close()
        header = parse_metadata(metadata[METADATA_KEY])
        if not schema.equals(schema_of(header.features, header.id_type)):
            raise ValueError("its columns are not those its metadata lists")
        self._starts = splits_of(counts)
        return header._replace(records=sum(counts))

    def _read_group(self, group: int, columns: list[str] | None = None) -> Any:
        import pyarrow as pa

        table = pa.Table.from_batches([self._open_file().get_batch(group)])
        table = table if columns is None else table.select(columns)
        table.validate(full=True)  # offsets and texts: damaged ones would lead outside the map
        return table

    def _verify(self) -> tuple[str, ...]:
        import pyarrow as pa

        file = self._open_file()
        # The batches one after the other, without the footer, which says where they are.
        self._map.seek(_STREAM_BEGINS)
        stream = pa.ipc.open_stream(self._map)
        if not stream.schema.equals(file.schema, check_metadata=True):
            raise ValueError("its footer has another schema than its beginning")
        if sum(1 for _ in stream) != file.num_record_batches:
            raise ValueError("its footer has another number of record batches than there are")
        checked = 0
        for i, (start, stop) in enumerate(pairwise(self._starts.tolist())):
            checksums = ColumnChecksums(self.features, self.id_type)
            checksums.add(convert_from_arrow(self._read_group(i), self.features))
            _, metadata = file.get_batch_with_custom_metadata(i)
            if metadata is not None and CHECKSUMS_KEY in metadata:
                recorded = json.loads(metadata[CHECKSUMS_KEY])["columns"]
                compare(recorded, checksums.of_columns(), f"records {start} to {stop - 1}")
                checked += 1
        if 0 < checked < file.num_record_batches:
            raise ValueError("a record batch has lost its checksums")
        return () if checked == file.num_record_batches else ("values",)

    def _open_file(self) -> Any:
        import pyarrow as pa

        if self._reader is None:
            self._map = pa.memory_map(str(self.path))
            self._reader = pa.ipc.open_file(self._map)
        return self._reader

    def close(self) -> None:
        """Closes the file; arrays that were read from it stay valid."""
        super().close()
        self._reader = None
        if self._map is not None:
            self._map.close()
            self._map = None


class ColumnChecksums:
    """Checksums of the values of each column, of any number of batches, however they were cut.

    They depend on the values alone: a change of the bytes that say how a file stores them, such as
    their type or place, changes the checksum as soon as it changes a value.
    """

    def __init__(self, features: tuple[Feature, ...], id_type: str) -> None:
        self._columns = columns_of(features, id_type)
        self._crcs = dict.fromkeys(self._columns, 0)

    def add(self, batch: FeatureBatch) -> None:
        """Continues each column."""
        columns = convert_to_columns(batch)
        for name, (rows, dtype, _) in self._columns.items():
            # Splits begin at 0 in every batch; lengths do not depend on where batches were cut.
            values = np.diff(columns[name]) if rows == "splits" else columns[name]
            if dtype == TEXT:  # no text of a format with column checksums holds NUL
                data: Any = "\0".join([*values, ""]).encode()
            else:
                data = bytes_of(values.astype(np.dtype(dtype).newbyteorder("<"), copy=False))
            self._crcs[name] = checksum(data, self._crcs[name])

    def of_columns(self) -> dict[str, str]:
        """The checksum of each column."""
        return {name: as_hex(crc) for name, crc in self._crcs.items()}


def compare(recorded: Mapping[str, str], computed: Mapping[str, str], where: str) -> None:
    """Refuses values that are not those that were written; raises ValueError."""
    for name, crc in computed.items():
        if recorded[name] != crc:
            raise ValueError(f"{where}: the values of {name} are not those that were written")
