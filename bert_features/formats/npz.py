"""NumPy's .npz: flat columns, which `np.load(path)` opens.

Arrays: `unique_ids` [N], int64 or unicode; with token features `row_splits` int64 [N + 1], `tokens`
unicode [T] and `token_ids` int32 [T]; with word features `word_splits` int64 [N + 1], `words`
unicode [W] and `word_starts`, `word_ends`, `word_type_ids`, `word_num_pieces` int32 [W]; one float
array [T, D], [W, D] or [N, D] per feature of tokens, words or the sequence; of attention [P, D],
with the pairs of example i at `token_pair_splits` or `word_pair_splits`; and `metadata`, a 0-d
unicode array of JSON. The tokens of example i lie at row_splits[i]:row_splits[i + 1], its words at
word_splits[i]:word_splits[i + 1].

An .npy member begins with its length, which is known only at the end. So each column goes to a
hidden file of its own, a spool, as one array after the other. Closing the writer copies the spools
into the archive and removes them one by one: everything is written twice, and the disk needs room
for one more column.

The archive has the CRC-32 of each member, which covers the whole array and its header, so the
metadata has no other. `np.load` compares it when it reads an array; a memory map does not, and
`FeatureFile.verify` does.
"""

import io
import json
import math
import os
import struct
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.config.levels import TEXT
from bert_features.formats.column_file import ColumnFile, ColumnWriter
from bert_features.formats.columns import bytes_of, check_columns, columns_of
from bert_features.formats.headers import Header, parse_metadata

# The header of a zip member without its two fields of variable length: magic, their lengths.
MEMBER_HEADER = struct.Struct("<4s22xHH")
MEMBER_MAGIC = b"PK\x03\x04"
# A field of it that only pads, as of Android's zipalign: its id, its length, the alignment.
_PADDING = struct.Struct("<HHH")
_PADDING_ID, _ALIGNMENT, _ZIP64_BYTES = 0xD935, 64, 20
# NumPy parses a header as Python, which in Python 3.11 may fail in two threads at a time
# (SystemError: AST constructor recursion depth mismatch).
_PARSING = threading.Lock()


class Writer(ColumnWriter):
    """Writes an .npz archive, uncompressed, so that it can be mapped into memory."""

    def _open(self) -> None:
        # Numbered: the name of a feature may be too long for a file name, or not allowed in one.
        self._spools = {
            name: self._staging.create(self._staging.scratch(f"column{i}"))
            for i, name in enumerate(self._columns)
        }
        # The final width of texts is not known yet.
        self._dtypes = {
            name: np.dtype("<U1" if column.dtype == TEXT else column.dtype)
            for name, column in self._columns.items()
        }
        super()._open()

    def _append(self, name: str, values: np.ndarray) -> None:
        dtype = self._columns[name].dtype
        # An array of texts is as wide as the longest text.
        array = values.astype(np.str_ if dtype == TEXT else dtype, copy=False)
        self._dtypes[name] = np.promote_types(self._dtypes[name], array.dtype)
        self._spools[name].write(_npy_header(array.dtype, array.shape))
        self._spools[name].write(bytes_of(array))

    def _finish(self) -> None:
        rows = {"sequence": self.records, "splits": self.records + 1, **self._totals}
        with zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED) as archive:
            for name, column in self._columns.items():
                count, spool = rows[column.rows], self._spools.pop(name)
                shape = (count,) if column.width is None else (count, column.width)
                self._write_member(archive, name, self._dtypes[name], shape, _arrays(spool))
                spool.close()
                os.unlink(spool.name)  # noqa: PTH108 - BufferedRandom.name is the path as given
            metadata = np.array(json.dumps(self._metadata))
            self._write_member(archive, "metadata", metadata.dtype, (), [metadata])

    def _write_member(
        self,
        archive: zipfile.ZipFile,
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        arrays: Iterable[np.ndarray],
    ) -> None:
        # A ZipInfo of 1980, so that equal columns make equal bytes. force_zip64: the size, which
        # zipfile learns only at the end, may exceed 4 GB.
        info = zipfile.ZipInfo(f"{name}.npy")
        # A mapped array that is not aligned is copied before NumPy computes with it.
        fixed = MEMBER_HEADER.size + len(info.filename.encode()) + _PADDING.size + _ZIP64_BYTES
        padding = -(self._file.tell() + fixed) % _ALIGNMENT
        info.extra = _PADDING.pack(_PADDING_ID, 2 + padding, _ALIGNMENT) + bytes(padding)
        with archive.open(info, "w", force_zip64=True) as member:
            member.write(_npy_header(dtype, shape))
            for array in arrays:
                member.write(bytes_of(array.astype(dtype, copy=False)))
                self._staging.raise_failure()


class File(ColumnFile):
    """Reads an .npz archive through memory maps of its members."""

    format = "npz"

    def _read_header(self) -> Header:
        columns = self._columns
        self.close()
        header = parse_metadata(str(columns["metadata"].reshape(-1)[0]))
        records = check_columns(columns, columns_of(header.features, header.id_type))
        return header._replace(records=records, is_whole=header.is_whole is not False)

    def _verify(self) -> tuple[str, ...]:
        with zipfile.ZipFile(self.path) as archive:
            bad = archive.testzip()
        if bad is not None:
            raise ValueError(f"{bad.removesuffix('.npy')} is not as it was written")
        return ()

    def _open(self) -> Mapping[str, Any]:
        with self.path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return {
                info.filename.removesuffix(".npy"): _map_member(file, info)
                for info in archive.infolist()
            }


def _npy_header(dtype: np.dtype, shape: tuple[int | None, ...]) -> bytes:
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    encoded = io.BytesIO()
    np.lib.format.write_array_header_1_0(encoded, header)
    return encoded.getvalue()


def _arrays(spool: io.BufferedRandom) -> Iterator[np.ndarray]:
    spool.seek(0)
    while spool.peek(1):
        np.lib.format.read_magic(spool)
        shape, _, dtype = np.lib.format.read_array_header_1_0(spool)
        yield np.frombuffer(spool.read(math.prod(shape) * dtype.itemsize), dtype)


def _map_member(file: io.BufferedReader, info: zipfile.ZipInfo) -> np.ndarray:
    """An .npy member of an uncompressed archive, mapped where it lies in the file."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is compressed; writers of this format never compress")
    file.seek(info.header_offset)
    magic, name_length, extra_length = MEMBER_HEADER.unpack(file.read(MEMBER_HEADER.size))
    if magic != MEMBER_MAGIC:
        raise ValueError(f"{info.filename} is not where the archive's directory says")
    begin = info.header_offset + MEMBER_HEADER.size + name_length + extra_length
    file.seek(begin)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{info.filename} has a header of another version")
    with _PARSING:
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    size = int(np.prod(shape)) * dtype.itemsize
    if fortran_order or dtype.hasobject or file.tell() + size != begin + info.file_size:
        raise ValueError(f"{info.filename} is not a plain array of its length")
    if size == 0:  # nothing to map
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape)
