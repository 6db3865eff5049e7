"""NumPy's .npz: flat columns that plain `np.load(path)` opens.

Arrays: `unique_ids` int64 [N], `row_splits` int64 [N + 1], `token_ids` int32 [T], `tokens` unicode
[T], one float array [T, D] per feature, and `metadata`, a 0-d unicode array of JSON. The tokens of
example i lie at row_splits[i]:row_splits[i + 1].

An .npy member begins with its length, which is known at the end only. So each column is spooled to
a hidden file of its own and copied into the archive when the writer is closed, each spool being
removed after it: while it finishes, a writer needs up to twice the space of the file.
"""

import contextlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.records import FeatureBatch
from bert_features.writers.base import FeatureWriter
from bert_features.writers.reader import ColumnFile, Header, check_columns, parse_metadata

BLOCK_BYTES = 1 << 20
# Of each run of tokens in their spool: how many, and how many characters wide.
RUN = struct.Struct("<qq")
# Of a zip member's own header: its length without the two fields that vary, and those lengths.
MEMBER_HEADER = struct.Struct("<4s22xHH")
MEMBER_MAGIC = b"PK\x03\x04"


class Writer(FeatureWriter):
    """Writes an .npz archive, uncompressed, so that it can be mapped into memory."""

    def _open(self) -> None:
        names = ["unique_ids", "row_splits", "token_ids", "tokens"]
        names += [feature.name for feature in self._features]
        # Numbered, as a feature's name may be too long or odd for a file's.
        self._spools = {
            name: self._create(self._temporary(f"{self.path.name}.column{i}"))
            for i, name in enumerate(names)
        }
        self._total = 0  # tokens
        self._token_width = 1
        self._spools["row_splits"].write(_raw(np.zeros(1, np.int64)))

    def _write(self, batch: FeatureBatch) -> None:
        self._spools["unique_ids"].write(_raw(batch.unique_ids.astype(np.int64)))
        self._spools["row_splits"].write(_raw(batch.row_splits[1:].astype(np.int64) + self._total))
        self._spools["token_ids"].write(_raw(batch.token_ids.astype(np.int32)))
        for feature in self._features:
            self._spools[feature.name].write(_raw(batch.features[feature.name]))
        self._spool_tokens(batch.tokens)
        self._total += len(batch.tokens)

    def _spool_tokens(self, tokens: list[str]) -> None:
        # An array of text is as wide as its longest, so the final width is not known yet.
        texts = np.array(tokens, np.str_)
        width = texts.dtype.itemsize // 4
        self._token_width = max(self._token_width, width)
        self._spools["tokens"].write(RUN.pack(len(texts), width) + texts.tobytes())

    def _finish(self) -> None:
        file = self._create(self._partial(self.path))
        rows, total = self.records, self._total
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            self._copy(archive, "unique_ids", "int64", (rows,))
            self._copy(archive, "row_splits", "int64", (rows + 1,))
            self._copy(archive, "token_ids", "int32", (total,))
            self._copy(archive, "tokens", f"<U{self._token_width}", (total,))
            for feature in self._features:
                self._copy(archive, feature.name, feature.dtype, (total, feature.width))
            metadata = np.array(json.dumps(self._metadata))
            _write_member(archive, "metadata", metadata.dtype, (), iter([metadata.tobytes()]))

    def _copy(
        self, archive: zipfile.ZipFile, name: str, dtype: str, shape: tuple[int, ...]
    ) -> None:
        """Moves a column from its spool into the archive."""
        spool = self._spools.pop(name)
        spool.seek(0)
        blocks = _token_blocks(spool, dtype) if name == "tokens" else _blocks(spool)
        _write_member(archive, name, np.dtype(dtype), shape, self._watched(blocks))
        spool.close()
        os.unlink(spool.name)  # noqa: PTH108 - BufferedRandom.name is the path as it was given

    def _watched(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self._raise_failure()


class File(ColumnFile):
    """Reads an .npz archive through memory maps of its members."""

    format = "npz"

    def _read_header(self) -> Header:
        with self._columns() as columns:
            metadata, features = parse_metadata(str(columns["metadata"].reshape(-1)[0]))
            return Header(metadata, features, check_columns(columns, features))

    @contextlib.contextmanager
    def _columns(self) -> Iterator[Mapping[str, Any]]:
        with self.path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield {
                info.filename.removesuffix(".npy"): _map_member(file, info)
                for info in archive.infolist()
            }


def _raw(values: np.ndarray) -> bytes | memoryview:
    """The bytes of an array in C order, without a copy where it has them so."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    blocks: Iterator[bytes],
) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    # force_zip64: a size that is known at the end may be beyond 4 GB.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for block in blocks:
            member.write(block)


def _blocks(spool: io.BufferedRandom) -> Iterator[bytes]:
    while block := spool.read(BLOCK_BYTES):
        yield block


def _token_blocks(spool: io.BufferedRandom, dtype: str) -> Iterator[bytes]:
    """The runs of `_spool_tokens`, each brought to the final width."""
    while start := spool.read(RUN.size):
        count, width = RUN.unpack(start)
        texts = np.frombuffer(spool.read(count * width * 4), f"<U{width}")
        yield texts.astype(dtype).tobytes()


def _map_member(file: io.BufferedReader, info: zipfile.ZipInfo) -> np.ndarray:
    """An .npy member of an uncompressed archive, mapped where it lies in the file."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is compressed, which writers of this format never do")
    file.seek(info.header_offset)
    magic, name_length, extra_length = MEMBER_HEADER.unpack(file.read(MEMBER_HEADER.size))
    if magic != MEMBER_MAGIC:
        raise ValueError(f"{info.filename} is not where the archive's directory says")
    begin = info.header_offset + MEMBER_HEADER.size + name_length + extra_length
    file.seek(begin)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{info.filename} has a header of another version")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    size = int(np.prod(shape)) * dtype.itemsize
    if fortran_order or dtype.hasobject or file.tell() + size != begin + info.file_size:
        raise ValueError(f"{info.filename} is not a plain array of its length")
    if size == 0:  # nothing to map
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape)
