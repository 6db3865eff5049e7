"""Rows to static batches: sorted by length within windows of a bounded number of tokens.

Every batch has `batch_size` rows; rows that fill up the last batch of a bucket are masked and carry
`FILLER_ID`.

Shape legend: `R` rows of a chunk or window, `T` tokens of all of them, `B` batch_size, `S` the
length of the bucket.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.features import MIN_SEQ_LENGTH

FILLER_ID = -1  # unique_ids of a row that only fills up a batch
# What stands in the columns of such a row, where it is not 0.
_FILL = {"unique_ids": FILLER_ID, "word_indices": -1}
_OF_TOKENS = ("values", "word_indices")  # the columns of a window that are flat over tokens

# Nothing here needs AutoGraph, whose reading of the source takes two seconds at start-up.
as_it_is = tf.autograph.experimental.do_not_convert


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


def bucketed(
    window: dict[str, tf.Tensor], buckets: Sequence[int], batch_size: int
) -> tf.data.Dataset:
    """The batches of a window, shortest bucket first; each example in the smallest that fits."""
    rows = tf.RaggedTensor.from_row_lengths(window["values"], window["lengths"], validate=False)
    of_rows = {
        name: column
        for name, column in window.items()
        if name not in (*_OF_TOKENS, "lengths", "type_starts")
    }
    bucket_of_row = tf.searchsorted(tf.constant(buckets, tf.int64), window["lengths"])
    datasets = []
    for index, length in enumerate(buckets):
        members = tf.where(bucket_of_row == index)[:, 0]
        position = tf.range(length)
        lengths = tf.cast(tf.gather(window["lengths"], members), tf.int32)[:, None]
        mask = position < lengths
        type_b = mask & (position >= tf.gather(window["type_starts"], members)[:, None])
        columns = {
            "input_word_ids": tf.gather(rows, members).to_tensor(shape=[None, length]),
            "input_mask": tf.cast(mask, tf.int32),
            "input_type_ids": tf.cast(type_b, tf.int32),
            **{name: tf.gather(column, members) for name, column in of_rows.items()},
        }
        if "word_indices" in window:
            indices = rows.with_values(window["word_indices"])
            columns["word_indices"] = tf.gather(indices, members).to_tensor(
                -1, shape=[None, length]
            )
        datasets.append(fixed_batches(columns, batch_size))
    joined = datasets[0]
    for dataset in datasets[1:]:
        joined = joined.concatenate(dataset)
    return joined


def fixed_batches(columns: Mapping[str, Any], batch_size: int) -> tf.data.Dataset:
    """Cuts columns [N, …] into batches [B, …], the last filled up with masked rows."""
    count = tf.shape(columns["unique_ids"])[0]
    missing = -count % batch_size

    def batches(name: str, column: tf.Tensor) -> tf.Tensor:
        column = tf.convert_to_tensor(column)
        fill = _FILL.get(name, 0)
        paddings = [[0, missing]] + [[0, 0]] * (column.shape.rank - 1)
        padded = tf.pad(column, paddings, constant_values=tf.cast(fill, column.dtype))
        return tf.reshape(padded, [-1, batch_size, *column.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(
        {name: batches(name, column) for name, column in columns.items()}
    )
