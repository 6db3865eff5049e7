"""Arrow IPC, the fast format: the layout of Parquet, uncompressed and mapped into memory.

One row per example, one column per feature; `arrow_layout` lists the columns. pyarrow alone writes
and reads it. The values lie in the file as in memory, in record batches of about 16 MB or 1024
examples. The metadata is JSON in the schema's metadata, under the key `bert_features`.

Arrow has no checksums. So the metadata of each record batch has, under `bert_features_checksums`,
those of its columns (`checksums.ColumnChecksums`), as JSON.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bert_features.formats.arrow_layout import (
    CHECKSUMS_KEY,
    METADATA_KEY,
    convert_from_arrow,
    convert_to_arrow,
    schema_of,
)
from bert_features.formats.checksums import ColumnChecksums, compare
from bert_features.formats.groups import GroupFile, GroupWriter
from bert_features.formats.headers import Header, parse_metadata
from bert_features.formats.records import FeatureBatch, splits_of

# The format begins with a word of 8 bytes; what follows, up to the footer, is a stream.
_STREAM_BEGINS = 8


class Writer(GroupWriter):
    """Writes an Arrow IPC file, uncompressed, so that it can be mapped into memory."""

    def _begin(self) -> None:
        import pyarrow as pa

        metadata = json.dumps(self._metadata).encode()
        schema = schema_of(self._features, self._id_type)
        self._schema = schema.with_metadata({METADATA_KEY: metadata})
        self._stream = pa.ipc.new_file(self._create(self._partial(self.path)), self._schema)

    def _write_group(self, batches: Sequence[FeatureBatch]) -> None:
        import pyarrow as pa

        checksums = ColumnChecksums(self._features, self._id_type)
        for batch in batches:
            checksums.add(batch)
        parts = [convert_to_arrow(batch, self._features, self._schema) for batch in batches]
        (group,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        recorded = {"columns": checksums.of_columns()}
        self._stream.write_batch(group, {CHECKSUMS_KEY: json.dumps(recorded).encode()})

    def _end(self) -> None:
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
            counts = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
        finally:
            self.close()
        header = parse_metadata((schema.metadata or {})[METADATA_KEY])
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
            found = ColumnChecksums(self.features, self.id_type)
            found.add(convert_from_arrow(self._read_group(i), self.features))
            _, metadata = file.get_batch_with_custom_metadata(i)
            if metadata is not None and CHECKSUMS_KEY in metadata:
                recorded = json.loads(metadata[CHECKSUMS_KEY])["columns"]
                compare(recorded, found.of_columns(), f"records {start} to {stop - 1}")
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
