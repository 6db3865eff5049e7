"""Packing: texts share rows so that little of a row is padding.

Best fit decreasing: from the longest text to the shortest, each goes to the row with the least room
that it fits. It works on the number of texts of each length, and places all texts of a length in
all rows that hold the same lengths at once (histogram packing, Krell et al. 2021,
arXiv:2107.02027). So a million tokens take some milliseconds, and a loop has a step for each length
and kind of row, not for each text.

Shape legend: `R` texts (rows of a megabatch), `P` packed rows, `K` kinds of packed rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_features.batches.row_plan import expand_ranges
from bert_features.config.packing import MAX_PACKED_TEXTS


@dataclass(frozen=True)
class PackedRows:
    """Which texts stand in which row.

    Attributes:
      order: int64 [R], the texts; the texts of a row are side by side.
      numbers: int64 [R], the number of each in its row, from 0.
      splits: int64 [P + 1], where the texts of each row begin in `order`, and end.
      counts: number of rows of each size; the rows of a size come one after the other.
    """

    order: np.ndarray
    numbers: np.ndarray
    splits: np.ndarray
    counts: tuple[int, ...]


class _Kind(NamedTuple):
    """A number of rows that hold texts of the same lengths: `lengths`, longest first."""

    rows: int
    size: int
    room: int
    lengths: tuple[int, ...]


def pack(lengths: np.ndarray, sizes: Sequence[int]) -> PackedRows:
    """Packs texts into rows; the same lengths in the same order give the same rows.

    Args:
      lengths: int64 [R], at least one; no text is longer than the largest size.
      sizes: the lengths of rows, ascending. A text opens a row of the smallest size that it fits.
    """
    kinds = sorted(_kinds(np.bincount(lengths).tolist(), sizes), key=lambda kind: kind.size)
    kind_lengths = np.concatenate([kind.lengths for kind in kinds])
    texts_of_kind = np.array([len(kind.lengths) for kind in kinds])
    kind_of_row = np.repeat(np.arange(len(kinds)), [kind.rows for kind in kinds])
    texts_of_row = texts_of_kind[kind_of_row]
    splits = np.concatenate([[0], np.cumsum(texts_of_row)])
    begins = (np.cumsum(texts_of_kind) - texts_of_kind)[kind_of_row]
    # The texts of a length go to the places for that length, both in their order.
    places = _by_value(kind_lengths[expand_ranges(begins, texts_of_row)])
    order = np.empty_like(places)
    order[places] = _by_value(lengths)
    return PackedRows(
        order=order,
        numbers=np.arange(len(order)) - np.repeat(splits[:-1], texts_of_row),
        splits=splits,
        counts=tuple(sum(kind.rows for kind in kinds if kind.size == size) for size in sizes),
    )


def _by_value(lengths: np.ndarray) -> np.ndarray:
    """int64 [R], a stable order; integers of 16 bits are sorted by their digits, which is fast."""
    small = lengths.astype(np.uint16) if lengths.max() < 1 << 16 else lengths
    return np.argsort(small, kind="stable")


def _kinds(counts: Sequence[int], sizes: Sequence[int]) -> Iterator[_Kind]:
    """Packs texts; `counts` are the numbers of texts with 0, 1, 2, … tokens."""
    shortest = next(length for length, count in enumerate(counts) if count)
    open_kinds: list[list[_Kind]] = [[] for _ in range(sizes[-1])]
    rooms = 0  # bit i is set if there is a kind with room for i tokens
    for length in reversed(range(shortest, len(counts))):
        count = counts[length]
        while count:
            fitting = rooms >> length
            if fitting:
                room = length + (fitting & -fitting).bit_length() - 1
                kind = open_kinds[room].pop()
            else:
                room = next(size for size in sizes if size >= length)
                kind = _Kind(0, room, room, ())
            # As many copies as the row takes: no row has less room that suffices.
            copies = min(room // length, MAX_PACKED_TEXTS - len(kind.lengths), count)
            rows = min(kind.rows or count, count // copies)
            count -= rows * copies
            if kind.rows > rows:
                open_kinds[room].append(kind._replace(rows=kind.rows - rows))
            elif fitting and not open_kinds[room]:
                rooms ^= 1 << room
            more = kind.lengths + (length,) * copies
            filled = _Kind(rows, kind.size, room - copies * length, more)
            if filled.room >= shortest and len(more) < MAX_PACKED_TEXTS:
                open_kinds[filled.room].append(filled)
                rooms |= 1 << filled.room
            else:
                yield filled
    for kinds in open_kinds:
        yield from kinds
