"""Rows to static batches: sorted by length within windows of a bounded number of tokens.

Every batch has one of a declared set of shapes: a length among the buckets, and the number of rows
that goes with that length. Rows of a window are taken from the longest to the shortest, so every
batch but the last is full. The last one may have a half, a quarter, … of the rows, unless each
shape has to be compiled. The rows that fill it up are masked and carry `FILLER_ID`.

Shape legend: `R` rows of a chunk or window, `T` tokens of all these rows, `B` rows of a batch, `S`
length of the bucket, `N` batches of a window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_features.batches.long_text import MIN_SEQ_LENGTH
from bert_features.errors import ConfigError

FILLER_ID = -1  # unique_ids of a row that only fills up a batch
# Values of such a row, by column, where they are not 0.
FILL_VALUES = {"unique_ids": FILLER_ID, "word_indices": -1}
# Columns of a window with one value per token, and their names in a batch.
_TOKEN_COLUMNS = {"values": "input_word_ids", "word_indices": "word_indices"}
_ROW_COLUMNS_LEFT_OUT = ("lengths", "type_starts")  # a batch has masks and types in their place

# For devices that run any shape at no cost: steps of at most a twelfth of the length, so that
# rounding up to the next bucket costs less than 3 % (scripts/benchmarking/diary.md).
_FINE_BUCKETS = (*range(3, 32), *range(32, 64, 2), *range(64, 128, 4), *range(128, 513, 8))
# For devices that compile each shape, which takes seconds.
_COARSE_BUCKETS = (16, 32, 64, 128, 256, 512)

# Tokens of a batch on each device other than a CPU: these need work for thousands of lanes.
DEVICE_BATCH_TOKENS = 16384

Columns = dict[str, np.ndarray]


def default_buckets(max_seq_length: int, *, any_shape: bool) -> tuple[int, ...]:
    """The lengths of a run whose settings name none: few where each is compiled, else many.

    Args:
      max_seq_length: the longest length.
      any_shape: whether batches of any shape cost no compilation, see `runtime.base.Runtime`.
    """
    buckets = _FINE_BUCKETS if any_shape else _COARSE_BUCKETS
    return resolve_buckets(buckets, max_seq_length)


def resolve_buckets(buckets: Sequence[int], max_seq_length: int) -> tuple[int, ...]:
    """The lengths a run uses: the buckets below `max_seq_length`, then `max_seq_length`.

    Raises:
      ConfigError: a length is too short to hold a token, or the buckets do not ascend.
    """
    if min([max_seq_length, *buckets]) < MIN_SEQ_LENGTH:
        raise ConfigError.naming(
            "{max_seq_length} {length} and {buckets} {received}: every length must be at least "
            "{least}: [CLS], a token, [SEP]",
            length=max_seq_length,
            received=list(buckets),
            least=MIN_SEQ_LENGTH,
        )
    if list(buckets) != sorted(set(buckets)):
        raise ConfigError.naming(
            "{buckets} {received} must ascend, each length once", received=list(buckets)
        )
    return (*(b for b in buckets if b < max_seq_length), max_seq_length)


@dataclass(frozen=True)
class BatchShapes:
    """The shapes that the batches of a run may have.

    Attributes:
      buckets: S of each shape, ascending.
      rows: B of a full batch of each bucket.
      multiple: number of devices; every B is a multiple of it.
      whole: whether every batch has all its rows, the last one of a window too. Then there is one
        shape for each bucket, as devices that compile each shape need it.
      uniform: whether each row is in a batch of the shortest bucket that it fits. Then the shape of
        its batch depends on its own length alone, if batches are whole too.
    """

    buckets: tuple[int, ...]
    rows: tuple[int, ...]
    multiple: int = 1
    whole: bool = False
    uniform: bool = False

    @classmethod
    def by_rows(cls, buckets: Sequence[int], rows: int, multiple: int) -> "BatchShapes":
        """Shapes with the same number of rows for every length."""
        # The runtime refuses rows that its devices cannot share evenly, not this class.
        multiple = rows if rows % multiple else multiple
        return cls(tuple(buckets), (rows,) * len(buckets), multiple)

    @classmethod
    def by_tokens(cls, buckets: Sequence[int], tokens: int, multiple: int = 1) -> "BatchShapes":
        """Shapes with at most `tokens` tokens each, but at least `multiple` rows."""
        rows = (max(tokens // bucket // multiple, 1) * multiple for bucket in buckets)
        return cls(tuple(buckets), tuple(rows), multiple)

    def tail(self, rows: int, needed: int) -> int:
        """The number of rows of a last batch: the smallest half, quarter, … that holds `needed`."""
        if self.whole:
            return rows
        shares = rows // self.multiple
        while shares > 1 and (half := -(-shares // 2)) * self.multiple >= needed:
            shares = half
        return shares * self.multiple


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a window.

    Attributes:
      order: int64 [R], the rows of the window in the order they are taken.
      starts: int64 [N], where each batch begins in `order`.
      counts: int64 [N], the number of rows it takes.
      rows: int64 [N], B.
      lengths: int64 [N], S.
    """

    order: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray


def plan_batches(lengths: np.ndarray, shapes: BatchShapes) -> BatchPlan:
    """Decides which rows of a window make which batch.

    Args:
      lengths: int64 [R].
      shapes: the shapes that batches may have.
    """
    order = np.argsort(-lengths, kind="stable")
    bucket_of_row = np.searchsorted(shapes.buckets, lengths[order])
    ends = np.full(len(shapes.buckets), len(order))  # where the rows end that may fill a batch
    if shapes.uniform:
        ends = np.searchsorted(-bucket_of_row, -np.arange(len(ends)), side="right")
    batches = []
    start = 0
    while start < len(order):
        bucket = int(bucket_of_row[start])
        rows = shapes.rows[bucket]
        count = min(rows, int(ends[bucket]) - start)
        batches.append((start, count, shapes.tail(rows, count), shapes.buckets[bucket]))
        start += count
    columns = np.array(batches, np.int64).reshape(-1, 4).T
    return BatchPlan(order, *columns)


def join_columns(chunks: Sequence[Columns]) -> Columns:
    """The columns of several chunks as those of one."""
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def cut_batches(window: Columns, shapes: BatchShapes) -> Iterator[tuple[np.ndarray, Columns]]:
    """Cuts a window into batches, longest first; one without columns makes none.

    Yields:
      The numbers of a batch's rows in the window, int64; and its columns, those of rows [B] and
      those of tokens [B, S].
    """
    if not window:
        return
    plan = plan_batches(window["lengths"], shapes)
    row_starts = np.cumsum(window["lengths"]) - window["lengths"]
    for start, count, rows, length in zip(
        plan.starts.tolist(),
        plan.counts.tolist(),
        plan.rows.tolist(),
        plan.lengths.tolist(),
        strict=True,
    ):
        members = plan.order[start : start + count]
        yield members, _batch(window, members, row_starts[members], rows, length)


def _batch(
    window: Columns, members: np.ndarray, row_starts: np.ndarray, rows: int, length: int
) -> Columns:
    position = np.arange(length)
    count = len(members)
    real = np.zeros((rows, length), bool)
    real[:count] = position < window["lengths"][members][:, None]
    places = (row_starts[:, None] + position)[real[:count]]
    in_text_b = real.copy()
    in_text_b[:count] &= position >= window["type_starts"][members][:, None]
    batch = {"input_mask": real.astype(np.int32), "input_type_ids": in_text_b.astype(np.int32)}
    for name, column in window.items():
        if name in _TOKEN_COLUMNS:
            tokens: np.ndarray = np.full((rows, length), FILL_VALUES.get(name, 0), np.int32)
            tokens[real] = column[places]
            batch[_TOKEN_COLUMNS[name]] = tokens
        elif name not in _ROW_COLUMNS_LEFT_OUT:
            values: np.ndarray = np.full(rows, FILL_VALUES.get(name, 0), column.dtype)
            values[:count] = column[members]
            batch[name] = values
    return batch
