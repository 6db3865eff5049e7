"""HDF5: flat columns, which grow with each batch.

Datasets have the names, types and shapes of the arrays that `npz` lists; `metadata` is a scalar.
Text is UTF-8 of any length.

HDF5 compares the Fletcher-32 of each chunk as it reads it. That does not cover texts, which lie
outside the chunks.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_features.config.levels import TEXT
from bert_features.formats.column_file import ColumnFile, ColumnWriter
from bert_features.formats.columns import check_columns, columns_of
from bert_features.formats.headers import Header, parse_metadata

# A chunk must fit the chunk cache (1 MiB per dataset in older HDF5), or each append reads it back.
CHUNK_BYTES = 512 << 10


class Writer(ColumnWriter):
    """Writes an HDF5 file by appending to its datasets."""

    def _open(self) -> None:
        import h5py

        # Through a Python file, which hides a full disk: HDF5 could not close its file then.
        self._h5 = h5py.File(self._file, "w")
        text = h5py.string_dtype("utf-8")
        # A dataset: an attribute holds 64 KB at most.
        self._h5.create_dataset("metadata", data=json.dumps(self._metadata), dtype=text)
        for name, column in self._columns.items():
            dtype = np.dtype(text if column.dtype == TEXT else column.dtype)
            shape = () if column.width is None else (column.width,)
            bytes_of_chunk = CHUNK_BYTES if shape else CHUNK_BYTES // 8
            rows = bytes_of_chunk // max(dtype.itemsize * math.prod(shape), 1)
            self._h5.create_dataset(
                name,
                (0, *shape),
                dtype,
                maxshape=(None, *shape),
                chunks=(max(rows, 1), *shape),
                fletcher32=column.dtype != TEXT,  # texts have no place for it
            )
        super()._open()

    def _finish(self) -> None:
        self._h5["metadata"][()] = json.dumps(self._metadata)
        self._h5.close()

    def _abandon(self) -> None:
        self._h5.close()

    def _append(self, name: str, values: np.ndarray) -> None:
        dataset = self._h5[name]
        start = len(dataset)
        dataset.resize(start + len(values), axis=0)
        dataset[start:] = values


class File(ColumnFile):
    """Reads an HDF5 file, a slice of its datasets at a time."""

    format = "hdf5"
    _unchecked = ("texts",)
    _h5: Any = None

    def _read_header(self) -> Header:
        try:
            columns = self._columns
            header = parse_metadata(columns["metadata"][()])
            records = check_columns(columns, columns_of(header.features, header.id_type))
        finally:
            self.close()
        return header._replace(records=records)

    def _open(self) -> Mapping[str, Any]:
        import h5py

        self._h5 = h5py.File(self.path, "r")
        return {
            name: column.asstr() if h5py.check_string_dtype(column.dtype) else column
            for name, column in self._h5.items()
        }

    def close(self) -> None:
        """Closes the file."""
        super().close()
        if self._h5 is not None:
            self._h5.close()
            self._h5 = None
