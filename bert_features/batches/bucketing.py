"""Rows to static batches: sorted by length within megabatches of a bounded number of tokens.

Every batch has one of a declared set of shapes: a length among the buckets, and the number of rows
that goes with that length. Rows of a megabatch are taken from the longest to the shortest, so every
batch but the last is full. The last one may have a half, a quarter, … of the rows, unless each
shape has to be compiled. The rows that fill it up are masked and carry `FILLER_ID`. Where a device
computes any shape, a batch has the length of its longest row, and ends early if that saves padding.

Packed batches are made by `packed_rows`: several rows of a megabatch share a row there.

Shape legend: `R` rows of a chunk or megabatch, `T` tokens of all these rows, `B` rows of a batch,
`S` length of the bucket, `N` batches of a megabatch, `M` rows of a megabatch that stand in a batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from bert_features.batches.long_text import MIN_SEQ_LENGTH
from bert_features.batches.packed_rows import pack
from bert_features.batches.row_plan import expand_ranges
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.packing import (
    ATTENDED,
    MAX_PACKED_TEXTS,
    POSITION_IDS,
    SCORED,
    SPAN_BOUNDS,
    TARGET_IDS,
    TEXT_NUMBERS,
)
from bert_features.errors import ConfigError

FILLER_ID = -1  # unique_ids of a row that only fills up a batch
# Values of such a row, by column, where they are not 0.
FILL_VALUES = {"unique_ids": FILLER_ID}
# Columns of tokens with places in their row, or -1, which packing moves. No row of a megabatch has
# more words or spans than tokens.
_PLACES = ("word_indices", *SPAN_BOUNDS)
_TOKEN_COLUMNS = (*_PLACES, TARGET_IDS)  # where there is no token they have -1
# Columns of a megabatch for which a batch has others, such as masks and types.
_COLUMNS_LEFT_OUT = (*_TOKEN_COLUMNS, "values", "lengths", "type_starts", ATTENDED, SCORED)

# For devices that run any shape at no cost: steps of at most a twelfth of the length, so that
# rounding up to the next bucket costs less than 3 % (benchmarks/diary.md).
_FINE_BUCKETS = (*range(3, 32), *range(32, 64, 2), *range(64, 128, 4), *range(128, 513, 8))
# For devices that compile each shape, which takes seconds.
_COARSE_BUCKETS = (16, 32, 64, 128, 256, 512)

# The length of packed rows; rows for longer texts have a multiple. It is the number of lanes
# of a TPU.
PACKED_LENGTH = 128
# The most, unless a text is longer.
_MAX_PACKED_LENGTH = 512
# The products of BERT-base take as long for a token as its attention in a row of this length.
_PRODUCTS = 3000
# The last rows of a megabatch make packed batches of this part of the rows of a full one.
_TAIL_PARTS = 8
# Batches that a megabatch should fill where rows are packed (benchmarks/diary.md).
PACKED_POOL_BATCHES = 4

# Tokens of a batch on each device other than a CPU: these need work for thousands of lanes.
DEVICE_BATCH_TOKENS = 16384

Columns = dict[str, np.ndarray]


def choose_buckets(
    config: ExtractConfig, max_seq_length: int, *, any_shape: bool, packed: bool
) -> tuple[int, ...]:
    """The lengths of a run's rows; by default few where each shape is compiled, else many."""
    if packed:
        return packed_buckets(max_seq_length)
    usual = _FINE_BUCKETS if any_shape else _COARSE_BUCKETS
    return resolve_buckets(usual if config.buckets is None else config.buckets, max_seq_length)


def resolve_buckets(buckets: Sequence[int], max_seq_length: int) -> tuple[int, ...]:
    """The lengths a run uses: the buckets below `max_seq_length`, then `max_seq_length`.

    Raises:
      ConfigError: a length is too short to hold a token, or the buckets do not ascend.
    """
    if min([max_seq_length, *buckets]) < MIN_SEQ_LENGTH:
        raise ConfigError(
            f"max_seq_length {max_seq_length} and buckets {list(buckets)}: every length must be at "
            f"least {MIN_SEQ_LENGTH}: [CLS], a token, [SEP]"
        )
    if list(buckets) != sorted(set(buckets)):
        raise ConfigError(f"buckets is {list(buckets)}; allowed: ascending lengths, each once")
    return (*(b for b in buckets if b < max_seq_length), max_seq_length)


def packed_buckets(max_seq_length: int) -> tuple[int, ...]:
    """The lengths of packed rows: 128, and one for longer texts, if there may be any.

    That one is cheapest where all texts have the longest length, as cut texts have: 384 for
    two texts of 192. A gap beside such a text is shorter, and only short texts fit it.
    """
    if max_seq_length <= PACKED_LENGTH:
        return (PACKED_LENGTH,)
    least = -(-max_seq_length // PACKED_LENGTH) * PACKED_LENGTH
    rows = range(least, max(least, _MAX_PACKED_LENGTH) + 1, PACKED_LENGTH)

    def cost(row: int) -> float:
        return row * (_PRODUCTS + row) / (row // max_seq_length)

    return PACKED_LENGTH, min(rows, key=cost)


@dataclass(frozen=True)
class BatchShapes:
    """The shapes that the batches of a run may have.

    Attributes:
      buckets: S of each shape, ascending.
      rows: B of a full batch of each bucket.
      multiple: number of devices; it divides every B.
      whole: whether every batch has all its rows, the last one of a megabatch too. Then there is
        one shape for each bucket, as devices that compile each shape need it.
      uniform: whether each row is in a batch of the shortest bucket that it fits. Then the shape of
        its batch depends on its own length alone, if batches are whole too.
      packed: whether rows of a megabatch share the rows of batches; the buckets are
        `packed_buckets`.
      batch_cost: what a batch costs beside its tokens, as a number of tokens, on a device that
        computes any shape. Then a batch has the length of its longest row, and
        ends where its padding would cost more than another batch. 0 for the declared shapes, which
        uniform and packed batches always have.
    """

    buckets: tuple[int, ...]
    rows: tuple[int, ...]
    multiple: int = 1
    whole: bool = False
    uniform: bool = False
    packed: bool = False
    batch_cost: int = 0

    @classmethod
    def by_rows(cls, buckets: Sequence[int], rows: int, multiple: int) -> "BatchShapes":
        """Shapes with the same number of rows for every length."""
        # The runtime refuses rows that its devices cannot share evenly, not this class.
        multiple = rows if rows % multiple else multiple
        return cls(tuple(buckets), (rows,) * len(buckets), multiple)

    @classmethod
    def by_tokens(cls, buckets: Sequence[int], tokens: int, multiple: int = 1) -> "BatchShapes":
        """Shapes with at most `tokens` tokens each, but `multiple` rows or more."""
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

    def packed_tail(self, rows: int) -> int:
        """The number of rows of the packed batches that hold the last rows of a megabatch."""
        return max(rows // self.multiple // _TAIL_PARTS, 1) * self.multiple

    @property
    def declared(self) -> tuple[tuple[int, int], ...]:
        """(B, S) of full batches, then of packed batches that hold the last rows of a megabatch."""
        full = list(zip(self.rows, self.buckets, strict=True))
        tails = [(self.packed_tail(rows), length) for rows, length in full if self.packed]
        return tuple(dict.fromkeys(full + tails))


def device_shapes(
    config: ExtractConfig,
    max_seq_length: int,
    *,
    packed: bool,
    devices: int = 1,
    rows: int | None = None,
    most_tokens: int | None = None,
) -> BatchShapes:
    """The shapes of a run on TPUs or GPUs.

    `rows` replace the rows of the settings; `most_tokens` is the limit of each device, where
    the settings have neither rows nor tokens.
    """
    buckets = choose_buckets(config, max_seq_length, any_shape=False, packed=packed)
    rows = rows or config.batch_size
    if rows is not None:
        shapes = BatchShapes.by_rows(buckets, rows, devices)
    else:
        tokens = min(DEVICE_BATCH_TOKENS, most_tokens or DEVICE_BATCH_TOKENS) * devices
        tokens = config.batch_tokens or tokens
        shapes = BatchShapes.by_tokens(buckets, tokens, devices)
    return replace(shapes, multiple=devices, whole=True, uniform=config.dedupe, packed=packed)


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a megabatch.

    Attributes:
      order: int64 [R], the rows of the megabatch in the order they are taken.
      numbers: int64 [R], the number of each row in its row of the batch: from 0 where several
        share a row, else 0.
      starts: int64 [N], where each batch begins in `order`.
      counts: int64 [N], the number of rows of the megabatch it takes.
      filled: int64 [N], the number of its own rows that they fill.
      rows: int64 [N], B.
      lengths: int64 [N], S.
    """

    order: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    filled: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray

    @property
    def computed_tokens(self) -> int:
        """Tokens that the device computes, padding and filler rows included."""
        return int(self.rows @ self.lengths)


def plan_batches(lengths: np.ndarray, shapes: BatchShapes) -> BatchPlan:
    """Decides which rows of a megabatch, of these lengths, int64 [R], make which batch."""
    if shapes.packed:
        return _plan_packed(lengths, shapes)
    order = np.argsort(-lengths, kind="stable")
    bucket_of_row = np.searchsorted(shapes.buckets, lengths[order])
    ends = np.full(len(shapes.buckets), len(order))  # where the rows end that may fill a batch
    if shapes.uniform:
        ends = np.searchsorted(-bucket_of_row, -np.arange(len(ends)), side="right")
    tokens_before = np.concatenate([[0], np.cumsum(lengths[order])])
    batches = []
    start = 0
    while start < len(order):
        bucket = int(bucket_of_row[start])
        rows = shapes.rows[bucket]
        count = min(rows, int(ends[bucket]) - start)
        rows, length = shapes.tail(rows, count), shapes.buckets[bucket]
        if shapes.batch_cost and not shapes.uniform:
            length = int(lengths[order[start]])
            sizes = np.arange(1, -(-count // shapes.multiple) + 1) * shapes.multiple
            tokens = tokens_before[start + np.minimum(sizes, count)] - tokens_before[start]
            # The most real tokens for what the batch costs.
            rows = int(sizes[np.argmax(tokens / (sizes * length + shapes.batch_cost))])
            count = min(rows, count)
        batches.append((start, count, rows, length))
        start += count
    starts, counts, batch_rows, batch_lengths = np.array(batches, np.int64).reshape(-1, 4).T
    return BatchPlan(order, np.zeros_like(order), starts, counts, counts, batch_rows, batch_lengths)


def _plan_packed(lengths: np.ndarray, shapes: BatchShapes) -> BatchPlan:
    packed = pack(lengths, shapes.buckets)
    batches = []
    first = 0
    for count, length, rows in zip(packed.counts, shapes.buckets, shapes.rows, strict=True):
        end, tail = first + count, shapes.packed_tail(rows)
        tails = end - count % rows  # where the full batches end
        batches += [(start, rows, rows, length) for start in range(first, tails, rows)]
        batches += [(at, min(tail, end - at), tail, length) for at in range(tails, end, tail)]
        first = end
    firsts, filled, batch_rows, batch_lengths = np.array(batches, np.int64).reshape(-1, 4).T
    starts = packed.splits[firsts]
    counts = packed.splits[firsts + filled] - starts
    return BatchPlan(
        packed.order, packed.numbers, starts, counts, filled, batch_rows, batch_lengths
    )


def join_columns(chunks: Sequence[Columns]) -> Columns:
    """The columns of several chunks as one chunk's."""
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


@dataclass(frozen=True)
class Members:
    """The rows of a megabatch that stand in a batch, and where.

    Attributes:
      rows: int64 [M], their numbers in the megabatch.
      lengths: int64 [M], the number of tokens of each.
      numbers: int64 [M], see `BatchPlan`.
      places: int64 [M], where the tokens of each begin among the B * S of the batch; also its words
        among the B * S vectors of words.
      slots: int64 [M], the number of each among the vectors of level `sequence`: one for each row
        of the batch, or `MAX_PACKED_TEXTS` for each packed one.
    """

    rows: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray
    places: np.ndarray
    slots: np.ndarray

    @classmethod
    def none(cls) -> "Members":
        """No rows."""
        return cls(*(np.zeros(0, np.int64) for _ in fields(cls)))


def cut_batches(
    megabatch: Columns,
    shapes: BatchShapes,
    *,
    pad_id: int = 0,
    has_types: bool = True,
    segment: int = 0,
) -> Iterator[tuple[Members, Columns]]:
    """Cuts a megabatch into batches, longest first; one without columns makes none.

    Args:
      megabatch: the columns of its rows.
      shapes: the shapes that batches may have.
      pad_id: what `input_word_ids` has where there is no token.
      has_types: whether the tokens of text_b have type 1.
      segment: the type of the tokens of a row without text_b.

    Yields:
      A batch's rows of the megabatch; and its columns, [B] for rows and [B, S] for tokens.
      Packed batches have `text_numbers` and `position_ids`, see `config.packing`, and no columns of
      rows.
    """
    if not megabatch:
        return
    if segment:
        starts = megabatch["type_starts"]
        single = starts >= megabatch["lengths"]
        megabatch = {**megabatch, "type_starts": np.where(single, np.int32(0), starts)}
    plan = plan_batches(megabatch["lengths"], shapes)
    row_starts = np.cumsum(megabatch["lengths"]) - megabatch["lengths"]
    lengths = megabatch["lengths"][plan.order]
    # The rows of all batches one after the other: which of these each row of the megabatch is in,
    # and at which token there it begins.
    first = plan.numbers == 0
    rows = np.cumsum(first) - 1
    tokens_before = np.cumsum(lengths) - lengths
    offsets = tokens_before - tokens_before[first][rows]
    slots = MAX_PACKED_TEXTS if shapes.packed else 1
    for start, count, size, length in zip(
        plan.starts.tolist(),
        plan.counts.tolist(),
        plan.rows.tolist(),
        plan.lengths.tolist(),
        strict=True,
    ):
        its = slice(start, start + count)
        row = rows[its] - rows[start]
        members = Members(
            rows=plan.order[its],
            lengths=lengths[its],
            numbers=plan.numbers[its],
            places=row * length + offsets[its],
            slots=row * slots + plan.numbers[its],
        )
        batch = _batch(megabatch, members, row_starts, (size, length), shapes.packed, pad_id)
        if not has_types:
            batch["input_type_ids"][:] = 0
        yield members, batch


def _batch(
    megabatch: Columns,
    members: Members,
    row_starts: np.ndarray,
    shape: tuple[int, int],
    packed: bool,
    pad_id: int,
) -> Columns:
    rows, lengths = members.rows, members.lengths
    tokens = expand_ranges(row_starts[rows], lengths)  # where they are in the megabatch
    places = expand_ranges(members.places, lengths)  # and in the batch
    type_starts = megabatch["type_starts"][rows]
    is_text_b: np.ndarray | int = 0
    if (type_starts < lengths).any():
        is_text_b = tokens >= np.repeat(row_starts[rows] + type_starts, lengths)

    def laid_out(values: np.ndarray | int, fill: int = 0) -> np.ndarray:
        """int32 [B, S]: the values of the tokens at their places."""
        column = np.full(shape[0] * shape[1], fill, np.int32)
        column[places] = values
        return column.reshape(shape)

    batch = {
        "input_word_ids": laid_out(megabatch["values"][tokens], pad_id),
        "input_mask": laid_out(megabatch[ATTENDED][tokens] if ATTENDED in megabatch else 1),
        "input_type_ids": laid_out(is_text_b),
    }
    for name in (name for name in _TOKEN_COLUMNS if name in megabatch):
        values = megabatch[name][tokens]
        if packed and name in _PLACES:
            begins = np.repeat(members.places % shape[1], lengths)
            values = np.where(values < 0, values, values + begins)
        batch[name] = laid_out(values, -1)
    if packed:
        numbers = np.repeat(members.numbers + 1, lengths)
        positions = tokens - np.repeat(row_starts[rows], lengths)
        return batch | {TEXT_NUMBERS: laid_out(numbers), POSITION_IDS: laid_out(positions)}
    for name, column in megabatch.items():
        if name not in _COLUMNS_LEFT_OUT:
            batch[name] = np.full(shape[0], FILL_VALUES.get(name, 0), column.dtype)
            batch[name][: len(rows)] = column[rows]
    return batch
