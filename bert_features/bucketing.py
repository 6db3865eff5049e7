"""Rows to static batches: sorted by length within windows of a bounded number of tokens.

Every batch has one of a declared set of shapes: a length among the buckets, and as many rows as
that length has. The rows of a window are taken from the longest to the shortest, so that every
batch but the last is full; that one may have half, a quarter, … of the rows. Rows that fill it up
are masked and carry `FILLER_ID`.

Shape legend: `R` rows of a chunk or window, `T` tokens of all of them, `B` rows of a batch, `S` the
length of the bucket, `N` batches of a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.features import MIN_SEQ_LENGTH

FILLER_ID = -1  # unique_ids of a row that only fills up a batch
# What stands in the columns of such a row, where it is not 0.
_FILL = {"unique_ids": FILLER_ID, "word_indices": -1}
_OF_TOKENS = ("values", "word_indices")  # the columns of a window that are flat over tokens

# Where a shape costs nothing to compile: steps of at most a twelfth of the length, so that rounding
# up to the next one costs less than 3 % (docs/performance.md).
_FINE_BUCKETS = (*range(3, 32), *range(32, 64, 2), *range(64, 128, 4), *range(128, 513, 8))
# Where each shape is compiled for seconds.
_COARSE_BUCKETS = (16, 32, 64, 128, 256, 512)

# Nothing here needs AutoGraph, whose reading of the source takes two seconds at start-up.
as_it_is = tf.autograph.experimental.do_not_convert


def default_buckets(device_kind: str, max_seq_length: int) -> tuple[int, ...]:
    """The lengths of a run that names none: many on a CPU, few where each is compiled.

    Args:
      device_kind: `tpu`, `gpu` or `cpu`.
      max_seq_length: the longest.
    """
    buckets = _FINE_BUCKETS if device_kind == "cpu" else _COARSE_BUCKETS
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
    """

    buckets: tuple[int, ...]
    rows: tuple[int, ...]
    multiple: int = 1

    @classmethod
    def by_rows(cls, buckets: Sequence[int], rows: int) -> "BatchShapes":
        """As many rows in each batch, whatever its length, the last one too."""
        return cls(tuple(buckets), (rows,) * len(buckets), multiple=rows)

    @classmethod
    def by_tokens(cls, buckets: Sequence[int], tokens: int, multiple: int = 1) -> "BatchShapes":
        """As many rows as keep a batch within a number of tokens, but `multiple` at least."""
        rows = (max(tokens // bucket // multiple, 1) * multiple for bucket in buckets)
        return cls(tuple(buckets), tuple(rows), multiple)

    def tail(self, rows: int, needed: int) -> int:
        """The rows of a batch for `needed` of them: the half, quarter, … of `rows` that will do."""
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


def sorting_windows(chunks: tf.data.Dataset, window_tokens: int) -> tf.data.Dataset:
    """Joins chunks until they hold `window_tokens` tokens or the input ends."""
    spec = chunks.element_spec
    empty = {key: tf.zeros([0], value.dtype) for key, value in spec.items()}
    flagged = chunks.map(as_it_is(lambda chunk: (chunk, False)))
    flagged = flagged.concatenate(tf.data.Dataset.from_tensors((empty, True)))

    def add(
        held: dict[str, tf.Tensor], chunk_and_end: tuple[dict[str, tf.Tensor], tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        chunk, end = chunk_and_end
        joined = {key: tf.concat([held[key], chunk[key]], axis=0) for key in held}
        full = end | (tf.size(joined["values"]) >= window_tokens)
        return tf.cond(full, lambda: (empty, joined), lambda: (joined, empty))

    windows = flagged.scan(empty, as_it_is(add))
    return windows.filter(as_it_is(lambda window: tf.size(window["lengths"]) > 0))


def batched(window: dict[str, tf.Tensor], shapes: BatchShapes) -> tf.data.Dataset:
    """The batches of a window, longest first."""

    def planned(lengths: np.ndarray) -> list[np.ndarray]:
        batches = plan_batches(lengths, shapes)
        return [batches.order, batches.starts, batches.counts, batches.rows, batches.lengths]

    plan = tf.numpy_function(planned, [window["lengths"]], [tf.int64] * 5, stateful=False)
    for column in plan:
        column.set_shape([None])
    order, *columns = plan
    starts = tf.cumsum(window["lengths"], exclusive=True)
    dataset = tf.data.Dataset.from_tensor_slices(tuple(columns))
    return dataset.map(
        as_it_is(lambda *place: _batch(window, starts, order, *place)),
        num_parallel_calls=1,
        deterministic=True,
    )


def _batch(
    window: dict[str, tf.Tensor],
    row_starts: tf.Tensor,
    order: tf.Tensor,
    start: tf.Tensor,
    count: tf.Tensor,
    rows: tf.Tensor,
    length: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """One batch: columns of rows [B], of tokens [B, S]."""
    members = order[start : start + count]
    lengths = tf.gather(window["lengths"], members)
    missing = rows - count
    position = tf.range(length)
    real = position < tf.pad(lengths, [[0, missing]])[:, None]  # [B, S]
    indices = tf.pad(tf.gather(row_starts, members), [[0, missing]])[:, None] + position
    type_starts = tf.pad(tf.gather(window["type_starts"], members), [[0, missing]])
    of_b = real & (position >= tf.cast(type_starts, tf.int64)[:, None])
    batch = {"input_mask": tf.cast(real, tf.int32), "input_type_ids": tf.cast(of_b, tf.int32)}
    last = tf.size(window["values"], tf.int64) - 1
    for name in _OF_TOKENS:
        if name in window:
            values = tf.gather(window[name], tf.minimum(indices, last))
            batch[_NAMES.get(name, name)] = tf.where(real, values, _FILL.get(name, 0))
    for name, column in window.items():
        if name not in (*_OF_TOKENS, "lengths", "type_starts"):
            fill = tf.cast(_FILL.get(name, 0), column.dtype)
            batch[name] = tf.pad(tf.gather(column, members), [[0, missing]], constant_values=fill)
    return batch


_NAMES = {"values": "input_word_ids"}


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
