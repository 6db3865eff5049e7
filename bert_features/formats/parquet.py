"""Parquet: one row per example, one column per feature; `arrow_layout` lists the columns.

The metadata is JSON in the file's schema metadata, under the key `bert_features`.

Every page has the CRC-32 of its bytes, which readers may compare; this one does. Files of earlier
versions have other checksums as well, under `bert_features_checksums`.
"""

import json
from collections.abc import Sequence
from typing import Any

from bert_features.formats.arrow_layout import METADATA_KEY, schema_of
from bert_features.formats.groups import GroupFile, GroupWriter
from bert_features.formats.headers import Header, parse_metadata
from bert_features.formats.parquet_pages.row_groups import RowGroupWriter
from bert_features.formats.records import FeatureBatch, splits_of


class Writer(GroupWriter):
    """Writes Parquet in row groups of about 16 MB or 1024 examples.

    `parquet_pages` writes the vectors ten times as fast as pyarrow, and pyarrow writes the rest.
    """

    def _open(self) -> None:
        super()._open()
        metadata = json.dumps(self._metadata).encode()
        schema = schema_of(self._features, self._id_type).with_metadata({METADATA_KEY: metadata})
        self._row_groups = RowGroupWriter(self._file, schema, self._features)

    def _write_group(self, batches: Sequence[FeatureBatch]) -> None:
        self._row_groups.write(batches)
        self._staging.raise_failure()

    def _finish(self) -> None:
        super()._finish()
        self._row_groups.close()


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
