"""Rows to static batches: sorted by length within windows of a bounded number of tokens.

Every batch has one of a declared set of shapes: a length among the buckets, and as many rows as
that length has. The rows of a window are taken from the longest to the shortest, so that every
batch but the last is full; that one may have half, a quarter, … of the rows, unless each shape is
to be compiled. Rows that fill it up are masked and carry `FILLER_ID`.

Shape legend: `R` rows of a chunk or window, `T` tokens of all of them, `B` rows of a batch, `S` the
length of the bucket, `N` batches of a window.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.official.features import MIN_SEQ_LENGTH

FILLER_ID = -1  # unique_ids of a row that only fills up a batch
# What stands in the columns of such a row, where it is not 0.
_FILL = {"unique_ids": FILLER_ID, "word_indices": -1}
# The columns of a window that are flat over tokens, and what they are called in a batch.
_OF_TOKENS = {"values": "input_word_ids", "word_indices": "word_indices"}
_OF_ROWS_ALONE = ("lengths", "type_starts")  # no column of a batch

# Where a shape costs nothing to compile: steps of at most a twelfth of the length, so that rounding
# up to the next one costs less than 3 % (docs/performance.md).
_FINE_BUCKETS = (*range(3, 32), *range(32, 64, 2), *range(64, 128, 4), *range(128, 513, 8))
# Where each shape is compiled for seconds.
_COARSE_BUCKETS = (16, 32, 64, 128, 256, 512)

Columns = dict[str, np.ndarray]


def default_buckets(max_seq_length: int, *, any_shape: bool) -> tuple[int, ...]:
    """The lengths of a run that names none: few where each is compiled, else many.

    Args:
      max_seq_length: the longest.
      any_shape: whether batches of any shape cost no compilation, see `runtime.base.Runtime`.
    """
    buckets = _FINE_BUCKETS if any_shape else _COARSE_BUCKETS
    return resolve_buckets(buckets, max_seq_length)


def resolve_buckets(buckets: Sequence[int], max_seq_length: int) -> tuple[int, ...]:
    """The lengths a run uses: the buckets below `max_seq_length`, and it.

    Raises:
      ConfigError: a length is too short to hold a token, or the buckets do not ascend.
    """
    if min([max_seq_length, *buckets]) < MIN_SEQ_LENGTH:
        raise ConfigError(
            f"max_seq_length {max_seq_length} and buckets {list(buckets)}: every length must be "
            f"at least {MIN_SEQ_LENGTH}: [CLS], a token, [SEP]"
        )
    if list(buckets) != sorted(set(buckets)):
        raise ConfigError(f"buckets {list(buckets)} must ascend, each length once")
    return (*(b for b in buckets if b < max_seq_length), max_seq_length)


@dataclass(frozen=True)
class BatchShapes:
    """The shapes that the batches of a run may have.

    Attributes:
      buckets: S, ascending.
      rows: B of a full batch of each.
      multiple: what every B is a multiple of: the number of devices.
      whole: whether every batch has all of its rows, the last of a window too: one shape for each
        length, where shapes are compiled for seconds.
    """

    buckets: tuple[int, ...]
    rows: tuple[int, ...]
    multiple: int = 1
    whole: bool = False

    @classmethod
    def by_rows(cls, buckets: Sequence[int], rows: int, multiple: int) -> "BatchShapes":
        """As many rows in each full batch, whatever its length."""
        # Rows that the devices cannot share are theirs to refuse.
        multiple = rows if rows % multiple else multiple
        return cls(tuple(buckets), (rows,) * len(buckets), multiple)

    @classmethod
    def by_tokens(cls, buckets: Sequence[int], tokens: int, multiple: int = 1) -> "BatchShapes":
        """As many rows as keep a batch within a number of tokens, but `multiple` at least."""
        rows = (max(tokens // bucket // multiple, 1) * multiple for bucket in buckets)
        return cls(tuple(buckets), tuple(rows), multiple)

    def tail(self, rows: int, needed: int) -> int:
        """The rows of a batch for `needed` of them: the half, quarter, … of `rows` that will do."""
        if self.whole:
            return rows
        shares = rows // self.multiple
        while shares > 1 and (half := -(-shares // 2)) * self.multiple >= needed:
            shares = half
        return shares * self.multiple


@dataclass(frozen=True)
class Batches:
    """The batches of a window.

    Attributes:
      order: int64 [R], the rows of the window in the order they are taken.
      starts: int64 [N], the first of each batch in `order`.
      counts: int64 [N], how many rows it takes.
      rows: int64 [N], B.
      lengths: int64 [N], S.
    """

    order: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray


def plan_batches(lengths: np.ndarray, shapes: BatchShapes) -> Batches:
    """Which rows of a window make which batch.

    Args:
      lengths: int64 [R].
      shapes: what the batches may be.
    """
    order = np.argsort(-lengths, kind="stable")
    bucket_of_row = np.searchsorted(shapes.buckets, lengths[order]).tolist()
    batches = []
    start = 0
    while start < len(order):
        bucket = bucket_of_row[start]
        rows = shapes.rows[bucket]
        count = min(rows, len(order) - start)
        batches.append((start, count, shapes.tail(rows, count), shapes.buckets[bucket]))
        start += count
    columns = np.array(batches, np.int64).reshape(-1, 4).T
    return Batches(order, *columns)


def sorting_windows(chunks: Iterable[Columns], window_tokens: int) -> Iterator[Columns]:
    """Joins chunks of rows until they hold `window_tokens` tokens or the input ends."""
    held: list[Columns] = []
    tokens = 0
    for chunk in chunks:
        held.append(chunk)
        tokens += len(chunk["values"])
        if tokens >= window_tokens:
            yield _joined(held)
            held, tokens = [], 0
    if held:
        yield _joined(held)


def _joined(chunks: list[Columns]) -> Columns:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def batched(window: Columns, shapes: BatchShapes) -> Iterator[Columns]:
    """The batches of a window, longest first: columns of rows [B] and of tokens [B, S]."""
    batches = plan_batches(window["lengths"], shapes)
    row_starts = np.cumsum(window["lengths"]) - window["lengths"]
    places = zip(
        batches.starts.tolist(),
        batches.counts.tolist(),
        batches.rows.tolist(),
        batches.lengths.tolist(),
        strict=True,
    )
    for start, count, rows, length in places:
        members = batches.order[start : start + count]
        yield _batch(window, members, row_starts[members], rows, length)


def _batch(
    window: Columns, members: np.ndarray, row_starts: np.ndarray, rows: int, length: int
) -> Columns:
    position = np.arange(length)
    count = len(members)
    real = np.zeros((rows, length), bool)
    real[:count] = position < window["lengths"][members][:, None]
    places = (row_starts[:, None] + position)[real[:count]]
    of_b = real.copy()
    of_b[:count] &= position >= window["type_starts"][members][:, None]
    batch = {"input_mask": real.astype(np.int32), "input_type_ids": of_b.astype(np.int32)}
    for name, column in window.items():
        if name in _OF_TOKENS:
            of_tokens: np.ndarray = np.full((rows, length), _FILL.get(name, 0), np.int32)
            of_tokens[real] = column[places]
            batch[_OF_TOKENS[name]] = of_tokens
        elif name not in _OF_ROWS_ALONE:
            of_rows: np.ndarray = np.full(rows, _FILL.get(name, 0), column.dtype)
            of_rows[:count] = column[members]
            batch[name] = of_rows
    return batch


def fixed_batches(columns: Mapping[str, Any], batch_size: int) -> tf.data.Dataset:
    """Cuts columns [N, …] into batches [B, …], the last filled up with masked rows."""
    count = tf.shape(columns["unique_ids"])[0]
    missing = -count % batch_size

    def batches(name: str, column: tf.Tensor) -> tf.Tensor:
        column = tf.convert_to_tensor(column)
        paddings = [[0, missing]] + [[0, 0]] * (column.shape.rank - 1)
        fill = tf.cast(_FILL.get(name, 0), column.dtype)
        padded = tf.pad(column, paddings, constant_values=fill)
        return tf.reshape(padded, [-1, batch_size, *column.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(
        {name: batches(name, column) for name, column in columns.items()}
    )
