"""Vectors as Parquet pages: the values as they lie in memory, behind levels that are computed.

Parquet stores for every single value how deep it is nested and where its lists begin. A general
writer derives that value by value, which takes longer than copying them. For vectors of one width
without nulls it is known beforehand. https://parquet.apache.org/docs/file-format/

Shape legend: `N` examples, `R` vectors of all examples, `D` width, `E` entries: one for each vector
and one for each example without vectors.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from bert_features.formats.parquet_pages.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    encode_struct,
    encode_unsigned,
)
from bert_features.formats.records import Feature

# Bytes of values in a page, as in pyarrow; the levels add about 1 %.
PAGE_BYTES = 1 << 20

# Numbers from the enumerations of the format.
_DATA_PAGE = 0
_PLAIN, _RLE = 0, 3
_UNCOMPRESSED = 0
PHYSICAL_TYPES = {"float16": 7, "float32": 4, "int32": 1}  # FIXED_LEN_BYTE_ARRAY(2), FLOAT, INT32


class Page(NamedTuple):
    """A data page.

    Attributes:
      parts: its bytes, in this order: header (empty before `add_header`), levels, values.
      num_values: number of values, and of entries without a vector.
    """

    parts: tuple[bytes, bytes, memoryview]
    num_values: int


def vector_pages(values: np.ndarray, splits: np.ndarray | None) -> Iterator[Page]:
    """A feature of a batch as pages, still without headers: float16 or float32 [R, D].

    A page that holds a whole example ends between two examples. `splits` are int64 [N + 1], where
    the vectors of each example begin and end; None where each has one vector instead of a list.
    """
    width = values.shape[1]
    raw = np.ascontiguousarray(values).view(np.uint8)  # [R, bytes of a vector]
    layout = _Layout.of(len(values), splits)
    limit = max(PAGE_BYTES // max(raw.shape[1], 1), 1)
    first = 0
    for start, stop in _cuts(layout.examples, len(layout.empty), limit):
        empty = layout.empty[start:stop]
        vectors = int(np.count_nonzero(~empty))
        levels = b"".join(
            [
                _with_length(_repetition(layout.continues[start:stop], empty, width, layout.depth)),
                _with_length(_definition(empty, width, layout.depth)),
            ]
        )
        data = raw[first : first + vectors].reshape(-1).data
        count = vectors * width + len(empty) - vectors
        yield Page((b"", levels, data), count)
        first += vectors


def add_header(page: Page) -> Page:
    """The same page with its header, which has the checksum of the rest."""
    _, levels, data = page.parts
    crc = isal_zlib.crc32(data, isal_zlib.crc32(levels))  # 5 times as fast as zlib's
    header = _page_header(len(levels) + len(data), page.num_values, crc)
    return Page((header, levels, data), page.num_values)


def column_chunk(feature: Feature, *, offset: int, size: int, num_values: int) -> Struct:
    """The footer's entry for a feature's pages in a row group.

    `offset` is the position of the first of them in the file, `size` the bytes of all.
    """
    depth = 1 if feature.is_sequence else 2
    path = [feature.name.encode(), *[b"list", b"element"] * depth]
    metadata: Struct = {
        1: (I32, PHYSICAL_TYPES[feature.dtype]),
        2: (LIST, (I32, [_PLAIN, _RLE])),
        3: (LIST, (BINARY, path)),
        4: (I32, _UNCOMPRESSED),
        5: (I64, num_values),
        6: (I64, size),
        7: (I64, size),
        9: (I64, offset),
    }
    return {2: (I64, 0), 3: (STRUCT, metadata)}


class _Layout(NamedTuple):
    """The entries of a feature.

    Attributes:
      depth: number of lists around a value.
      examples: int64 [N], the first entry of each example.
      continues: uint8 [E], 1 for entries that do not begin an example.
      empty: bool [E], whether the entry belongs to an example without vectors.
    """

    depth: int
    examples: np.ndarray
    continues: np.ndarray
    empty: np.ndarray

    @classmethod
    def of(cls, vectors: int, splits: np.ndarray | None) -> "_Layout":
        if splits is None:
            none = np.zeros(vectors, np.uint8)
            return cls(1, np.arange(vectors), none, none.astype(bool))
        lengths = np.diff(splits)
        entries = np.maximum(lengths, 1)
        examples = np.cumsum(entries) - entries
        continues = np.ones(int(entries.sum()), np.uint8)
        continues[examples] = 0
        empty = np.zeros(len(continues), bool)
        empty[examples[lengths == 0]] = True
        return cls(2, examples, continues, empty)


def _cuts(examples: np.ndarray, entries: int, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `limit` entries: whole examples, or a part of a longer one."""
    start = 0
    while start < entries:
        stop = start + limit
        if stop < entries:
            begins = int(examples[np.searchsorted(examples, stop, side="right") - 1])
            stop = begins if begins > start else stop
        stop = min(stop, entries)
        yield start, stop
        start = stop


def _repetition(continues: np.ndarray, empty: np.ndarray, width: int, depth: int) -> bytes:
    """Repetition levels: the list that each value continues, 0 where an example begins."""
    # Two runs for a vector: its first value, and the others, which continue the innermost list.
    pattern = _run(1, 0) + (_run(width - 1, depth) if width > 1 else b"")
    runs = np.tile(np.frombuffer(pattern, np.uint8), (len(empty), 1))
    first_level = len(_run(1, 0)) - 1
    runs[:, first_level] = continues
    if not empty.any():
        return runs.tobytes()
    kept = np.ones(runs.shape, bool)
    kept[empty, first_level + 1 :] = False
    return runs[kept].tobytes()


def _definition(empty: np.ndarray, width: int, depth: int) -> bytes:
    """Definition levels: each list that may be null counts one, and so does a value in it."""
    whole, none = 2 * depth + 1, 1
    bounds = [0, *(np.flatnonzero(np.diff(empty)) + 1).tolist(), len(empty)]
    return b"".join(
        _run(stop - start, none) if empty[start] else _run((stop - start) * width, whole)
        for start, stop in pairwise(bounds)
    )


def _run(count: int, level: int) -> bytes:
    """A level repeated `count` times, run-length encoded; levels are below 256 here."""
    return encode_unsigned(count << 1) + bytes([level])


def _with_length(levels: bytes) -> bytes:
    return struct.pack("<i", len(levels)) + levels


def _page_header(size: int, num_values: int, crc: int) -> bytes:
    data: Struct = {
        1: (I32, num_values),
        2: (I32, _PLAIN),
        3: (I32, _RLE),
        4: (I32, _RLE),
    }
    signed = crc - (1 << 32) if crc >> 31 else crc
    return encode_struct(
        {
            1: (I32, _DATA_PAGE),
            2: (I32, size),
            3: (I32, size),
            4: (I32, signed),
            5: (STRUCT, data),
        }
    )


def row_group(columns: Sequence[Struct], *, offset: int, rows: int) -> bytes:
    """The footer's entry, encoded, for a row group of `rows` examples from `offset` in the file."""
    metadata = [column[3][1] for column in columns]
    return encode_struct(
        {
            1: (LIST, (STRUCT, list(columns))),
            2: (I64, sum(part[6][1] for part in metadata)),
            3: (I64, rows),
            5: (I64, offset),
            6: (I64, sum(part[7][1] for part in metadata)),
        }
    )
