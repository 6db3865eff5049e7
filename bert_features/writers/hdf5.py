"""HDF5: flat columns that can grow.

Datasets: `unique_ids` int64 [N], `row_splits` int64 [N + 1], `token_ids` int32 [T], `tokens` UTF-8
text of any length [T], one float dataset [T, D] per feature, and the scalar text `metadata`, JSON.
The tokens of example i lie at row_splits[i]:row_splits[i + 1].
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.records import FeatureBatch
from bert_features.writers.base import FeatureWriter
from bert_features.writers.reader import ColumnFile, Header, check_columns, parse_metadata

# Chunks must fit the chunk cache (1 MiB per dataset in older HDF5), or each append reads them back.
CHUNK_BYTES = 512 << 10


class Writer(FeatureWriter):
    """Writes an HDF5 file by appending to its datasets."""

    def _open(self) -> None:
        import h5py

        # Through a Python file, so that HDF5 never meets a full disk: it could not be closed then.
        self._h5 = h5py.File(self._create(self._partial(self.path)), "w")
        text = h5py.string_dtype("utf-8")
        # A dataset, as an attribute is limited to 64 KB.
        self._h5.create_dataset("metadata", data=json.dumps(self._metadata), dtype=text)
        self._add("unique_ids", np.int64)
        self._add("row_splits", np.int64)
        self._add("token_ids", np.int32)
        self._add("tokens", text)
        for feature in self._features:
            self._add(feature.name, feature.dtype, feature.width)
        self._append("row_splits", np.zeros(1, np.int64))

    def _write(self, batch: FeatureBatch) -> None:
        total = len(self._h5["tokens"])
        self._append("unique_ids", batch.unique_ids)
        self._append("row_splits", batch.row_splits[1:] + total)
        self._append("token_ids", batch.token_ids)
        self._append("tokens", np.array(batch.tokens, dtype=object))
        for feature in self._features:
            self._append(feature.name, batch.features[feature.name])

    def _finish(self) -> None:
        self._h5.close()

    def _abandon(self) -> None:
        self._h5.close()

    def _add(self, name: str, dtype: Any, *shape: int) -> None:
        row_bytes = max(np.dtype(dtype).itemsize * int(np.prod(shape)), 1)
        rows = max(CHUNK_BYTES // 8 // row_bytes if not shape else CHUNK_BYTES // row_bytes, 1)
        self._h5.create_dataset(
            name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(rows, *shape)
        )

    def _append(self, name: str, values: np.ndarray) -> None:
        dataset = self._h5[name]
        start = len(dataset)
        dataset.resize(start + len(values), axis=0)
        dataset[start:] = values


class File(ColumnFile):
    """Reads an HDF5 file."""

    format = "hdf5"

    def _read_header(self) -> Header:
        with self._columns() as columns:
            metadata, features = parse_metadata(columns["metadata"][()])
            return Header(metadata, features, check_columns(columns, features))

    @contextlib.contextmanager
    def _columns(self) -> Iterator[Mapping[str, Any]]:
        import h5py

        with h5py.File(self.path, "r") as h5:
            columns = dict(h5.items())
            yield columns | {"tokens": columns["tokens"].asstr()}
