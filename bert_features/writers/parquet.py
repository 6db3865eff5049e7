"""Parquet: one row per example, one column per feature.

Columns: `unique_id` int64, `tokens` list<string>, `token_ids` list<int32>, and per feature
list<fixed_size_list<halffloat or float>[D]>. The metadata is JSON in the file's schema metadata,
under the key `bert_features`.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_features.records import Feature, FeatureBatch, FeatureRecord
from bert_features.writers.base import FeatureWriter
from bert_features.writers.reader import FeatureFile, Header, parse_metadata

METADATA_KEY = b"bert_features"

# A row group is what a reader holds at once. It is written when it has one of the first two, and
# kept below the third, which a single example may exceed.
ENOUGH_BYTES = 16 << 20
ENOUGH_ROWS = 1024
MOST_BYTES = 64 << 20


class Writer(FeatureWriter):
    """Writes Parquet in row groups of about 16 MB or 1024 examples."""

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._schema = _schema(self._features).with_metadata(
            {METADATA_KEY: json.dumps(self._metadata).encode()}
        )
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
            use_dictionary=["tokens.list.element", "token_ids.list.element"],
            write_statistics=["unique_id"],
        )

    def _write(self, batch: FeatureBatch) -> None:
        for part in _parts(batch):
            size = _feature_bytes(part)
            if self._pending_bytes + size > MOST_BYTES:
                self._flush()
            self._pending.append(_record_batch(part, self._schema))
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


class File(FeatureFile):
    """Reads Parquet, a row group at a time."""

    format = "parquet"

    def _read_header(self) -> Header:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as parquet:
            schema = parquet.schema_arrow
            metadata, features = parse_metadata((schema.metadata or {})[METADATA_KEY])
            if not schema.equals(_schema(features)):
                raise ValueError("its columns are not those its metadata lists")
            return Header(metadata, features, parquet.metadata.num_rows)

    def _records(self) -> Iterator[FeatureRecord]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as parquet:
            for i in range(parquet.num_row_groups):
                yield from self._batch(parquet.read_row_group(i)).records()

    def _batch(self, table: Any) -> FeatureBatch:
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        tokens, token_ids = columns["tokens"], columns["token_ids"]
        row_splits = _row_splits(tokens)
        for name in ("token_ids", *(feature.name for feature in self.features)):
            if not np.array_equal(_row_splits(columns[name]), row_splits):
                raise ValueError(f"{name} has not as many entries as there are tokens")
        return FeatureBatch(
            unique_ids=columns["unique_id"].to_numpy(),
            row_splits=row_splits,
            token_ids=token_ids.flatten().to_numpy(),
            tokens=tokens.flatten().to_pylist(),
            features={
                feature.name: columns[feature.name]
                .flatten()
                .flatten()
                .to_numpy()
                .reshape(-1, feature.width)
                for feature in self.features
            },
        )


def _schema(features: tuple[Feature, ...]) -> Any:
    import pyarrow as pa

    values = {"float16": pa.float16(), "float32": pa.float32()}
    return pa.schema(
        [
            ("unique_id", pa.int64()),
            ("tokens", pa.list_(pa.string())),
            ("token_ids", pa.list_(pa.int32())),
            *((f.name, pa.list_(pa.list_(values[f.dtype], f.width))) for f in features),
        ]
    )


def _record_batch(batch: FeatureBatch, schema: Any) -> Any:
    """A batch as Arrow, whose feature columns are views of the NumPy arrays."""
    import pyarrow as pa

    row_splits = pa.array(batch.row_splits, pa.int32())

    def rows(name: str, values: Any) -> Any:
        return pa.ListArray.from_arrays(row_splits, values, type=schema.field(name).type)

    def vectors(name: str, values: np.ndarray) -> Any:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        kind = schema.field(name).type.value_type
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)

    columns = {
        "unique_id": pa.array(batch.unique_ids, pa.int64()),
        "tokens": rows("tokens", pa.array(batch.tokens, pa.string())),
        "token_ids": rows("token_ids", pa.array(batch.token_ids, pa.int32())),
        **{name: rows(name, vectors(name, values)) for name, values in batch.features.items()},
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _feature_bytes(batch: FeatureBatch) -> int:
    return sum(values.nbytes for values in batch.features.values())


def _parts(batch: FeatureBatch) -> Iterator[FeatureBatch]:
    """A batch cut between examples into parts of at most `MOST_BYTES`, or of a single example."""
    size = _feature_bytes(batch)
    most_tokens = max(int(MOST_BYTES * len(batch.tokens) / size), 1) if size else len(batch.tokens)
    start = 0
    while start < len(batch):
        limit = batch.row_splits[start] + most_tokens
        stop = int(np.searchsorted(batch.row_splits, limit, side="right")) - 1
        stop = max(stop, start + 1)
        yield _part(batch, start, stop)
        start = stop


def _part(batch: FeatureBatch, start: int, stop: int) -> FeatureBatch:
    if (start, stop) == (0, len(batch)):
        return batch
    row_splits = batch.row_splits[start : stop + 1]
    tokens = slice(int(row_splits[0]), int(row_splits[-1]))
    return FeatureBatch(
        unique_ids=batch.unique_ids[start:stop],
        row_splits=row_splits - row_splits[0],
        token_ids=batch.token_ids[tokens],
        tokens=batch.tokens[tokens],
        features={name: values[tokens] for name, values in batch.features.items()},
    )


def _row_splits(column: Any) -> np.ndarray:
    """int64 [rows + 1]: where the lists of a column begin and end."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]
