"""Parquet: one row per example, one column per feature; `arrow_layout` lists the columns.

The metadata is JSON in the file's schema metadata, under the key `bert_features`.

Every page has the CRC-32 of its bytes, which readers may compare; this one does.

The pages of features are our own, the other columns and the footer pyarrow's. It writes the ids,
tokens and words to a small file in memory; their pages move into ours. It also writes the footer of
an empty file, to which the row groups are added.
"""

import json
import struct
from collections.abc import Sequence
from typing import IO, Any

from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.groups import GroupFile, GroupWriter
from bert_features.formats.headers import Header, parse_metadata
from bert_features.formats.parquet_pages.pages import (
    PHYSICAL_TYPES,
    add_header,
    column_chunk,
    row_group,
    vector_pages,
)
from bert_features.formats.parquet_pages.thrift import (
    I64,
    LIST,
    STRUCT,
    Struct,
    decode_struct,
    encode_struct,
)
from bert_features.formats.records import Feature, FeatureBatch, splits_of

MAGIC = b"PAR1"
FOOTER_END = struct.Struct("<i4s")  # the footer's length, and the last bytes of the file
# Fields of the metadata of a column that hold a position in the file.
_OFFSETS = {9, 10, 11}


class Writer(GroupWriter):
    """Writes Parquet in row groups of about 16 MB or 1024 examples.

    `parquet_pages` writes the vectors ten times as fast as pyarrow, and pyarrow writes the rest.
    """

    def _open(self) -> None:
        super()._open()
        schema = schema_of(self._features, self._id_type)
        self._row_groups = RowGroupWriter(self._file, schema, self._features)

    def _write_group(self, batches: Sequence[FeatureBatch]) -> None:
        self._row_groups.write(batches)
        self._staging.raise_failure()

    def _finish(self) -> None:
        super()._finish()
        self._row_groups.close(json.dumps(self._metadata).encode())


class File(GroupFile):
    """Reads Parquet, a row group at a time; the last one is kept for the next record."""

    format = "parquet"
    _parquet: Any = None

    def _read_header(self) -> Header:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as parquet:
            schema = parquet.schema_arrow
            header = parse_metadata((schema.metadata or {})[METADATA_KEY])
            if not schema.equals(schema_of(header.features, header.id_type)):
                raise ValueError("its columns are not those its metadata lists")
            groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
            self._starts = splits_of([group.num_rows for group in groups])
            return header._replace(records=parquet.metadata.num_rows)

    def _read_group(self, group: int, columns: list[str] | None = None) -> Any:
        return self._open_file().read_row_group(group, columns)

    def _open_file(self) -> Any:
        import pyarrow.parquet as pq

        if self._parquet is None:
            self._parquet = pq.ParquetFile(self.path, page_checksum_verification=True)
        return self._parquet

    def close(self) -> None:
        """Closes the file and drops the row group that was kept."""
        super().close()
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None


class RowGroupWriter:
    """Writes a Parquet file, a row group at a time.

    Features are neither encoded nor compressed: zstd saves 8 % of their size and doubles the time,
    and hardly any value occurs twice.

    Args:
      file: the file to write, at its beginning.
      schema: the `pyarrow.Schema` of the file.
      features: the features, each a column of the schema.
    """

    def __init__(self, file: IO[bytes], schema: Any, features: Sequence[Feature]) -> None:
        self._file, self._schema, self._features = file, schema, tuple(features)
        # pyarrow writes int8 too, by a dictionary: Parquet's own integers have at least 4 bytes.
        self._vectors = [each for each in self._features if each.dtype in PHYSICAL_TYPES]
        vectors = {feature.name for feature in self._vectors}
        self._others = [name for name in schema.names if name not in vectors]
        self._groups: list[bytes] = []
        self._rows = 0
        self._position = 0
        self._append(MAGIC)

    def write(self, batches: Sequence[FeatureBatch]) -> None:
        """Appends batches as one row group."""
        start = self._position
        columns = dict(zip(self._others, self._append_others(batches), strict=True))
        columns |= {each.name: self._append_feature(each, batches) for each in self._vectors}
        rows = sum(len(batch) for batch in batches)
        in_order = [columns[name] for name in self._schema.names]
        self._groups.append(row_group(in_order, offset=start, rows=rows))
        self._rows += rows

    def close(self, metadata: bytes) -> None:
        """Writes the footer, with the metadata of the file."""
        schema = self._schema.with_metadata({METADATA_KEY: metadata})
        empty = decode_footer(encode_table(schema.empty_table()))
        rows, groups = (I64, self._rows), (LIST, (STRUCT, self._groups))
        footer = encode_struct(empty | {3: rows, 4: groups})
        self._append(footer + FOOTER_END.pack(len(footer), MAGIC))

    def _append_others(self, batches: Sequence[FeatureBatch]) -> list[Struct]:
        """Writes the columns other than features by way of a file of pyarrow's in memory."""
        import pyarrow as pa

        parts = [convert_to_arrow(batch, self._features, self._schema) for batch in batches]
        file = encode_table(pa.Table.from_batches(parts, self._schema).select(self._others))
        moved = self._position - len(MAGIC)
        self._append(file[len(MAGIC) : footer_start(file)])
        (group,) = decode_footer(file)[4][1][1]
        columns: list[Struct] = group[1][1][1]
        for column in columns:
            metadata = column[3][1]
            for field in _OFFSETS & metadata.keys():
                metadata[field] = (I64, metadata[field][1] + moved)
        return columns

    def _append_feature(self, feature: Feature, batches: Sequence[FeatureBatch]) -> Struct:
        start = self._position
        num_values = 0
        for batch in batches:
            pages = vector_pages(batch.columns[feature.name], batch.row_splits(feature))
            for page in map(add_header, pages):
                for data in page.parts:
                    self._append(data)
                num_values += page.num_values
        size = self._position - start
        return column_chunk(feature, offset=start, size=size, num_values=num_values)

    def _append(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._position += len(data)


def encode_table(table: Any) -> bytes:
    """A `pyarrow.Table` of ids, followed by lists with repeated entries, as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(len(table), 1),
        compression="none",
        write_statistics=["unique_id"],
        write_page_checksum=True,
        write_page_index=False,  # holds positions in the file, which would have to move too
        use_dictionary=[f"{name}.list.element" for name in table.column_names[1:]],
    )
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def footer_start(file: bytes) -> int:
    """The position of the footer of a Parquet file."""
    length, _ = FOOTER_END.unpack(file[-FOOTER_END.size :])
    start: int = len(file) - FOOTER_END.size - length
    return start


def decode_footer(file: bytes) -> Struct:
    """The footer of a Parquet file."""
    return decode_struct(file, footer_start(file))
