"""input_fn: examples to static batches, as a tf.data.Dataset.

Text is tokenised in the graph, cut into windows of a bounded number of tokens, sorted within each
window into buckets by length, and padded to static shapes. Every batch has `batch_size` rows; rows
that fill up the last batch of a bucket are masked and carry `FILLER_ID`.

Shape legend: `N` examples of a chunk or window, `B` batch_size, `S` the length of the bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.examples import InputExample
from bert_features.features import MIN_SEQ_LENGTH, InputFeatures
from bert_features.tokenization import FullTokenizer, utf8
from bert_features.vocabulary import CLS, SEP

DEFAULT_BUCKETS = (16, 32, 64, 128, 256, 512)
FILLER_ID = -1  # unique_ids of a row that only fills up a batch

# One call of the tokenizer's graph: enough rows to make its overhead small (as many as in
# scripts/benchmark_tokenizer.py), and a bound on their text.
_CHUNK_ROWS = 1024
_CHUNK_BYTES = 1 << 18

# Nothing here needs AutoGraph, whose reading of the source takes two seconds at start-up.
_as_it_is = tf.autograph.experimental.do_not_convert

Params = Mapping[str, Any]
InputFn = Callable[[Params], tf.data.Dataset]


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


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int) -> InputFn:
    """An input_fn over features in memory, all of one length, as the official script has it.

    Args:
      features: what `convert_examples_to_features` made.
      seq_length: the length it made them of.

    Returns:
      A function of `params`, of which it reads `batch_size`, giving a dataset of
      {unique_ids int64 [B]; input_word_ids, input_mask, input_type_ids int32 [B, S]}.

    Raises:
      ConfigError: a feature is of another length.
    """
    for feature in features:
        if len(feature.input_ids) != seq_length:
            raise ConfigError(
                f"the features of example {feature.unique_id} are {len(feature.input_ids)} long; "
                f"seq_length is {seq_length}"
            )

    def matrix(rows: Iterable[list[int]]) -> np.ndarray:
        return np.array(list(rows), np.int32).reshape(len(features), seq_length)

    columns = {
        "unique_ids": np.array([f.unique_id for f in features], np.int64),
        "input_word_ids": matrix(f.input_ids for f in features),
        "input_mask": matrix(f.input_mask for f in features),
        "input_type_ids": matrix(f.input_type_ids for f in features),
    }

    def input_fn(params: Params) -> tf.data.Dataset:
        return _fixed_batches(columns, int(params["batch_size"]))

    return input_fn


class TextInputFn:
    """An input_fn over texts: tokenised in the graph, bucketed, streamed.

    Memory is bounded by `window_tokens`, whatever the number of examples. Calling it gives a
    dataset of {unique_ids int64 [B]; input_word_ids, input_mask, input_type_ids int32 [B, S];
    tokens_lost int32 [B], pieces that truncation cut off}, S one of the buckets. All examples of
    one window come before those of the next.

    Args:
      examples: gives a fresh iterator over the examples each time a dataset is iterated.
      tokenizer: the tokenizer of the checkpoint.
      buckets: the lengths of rows, ascending; the last is the longest, where texts are truncated.
      window_tokens: how many tokens are sorted into buckets together.

    Attributes:
      error: what `examples` raised, if it did. TensorFlow's own error carries only its text.
    """

    def __init__(
        self,
        examples: Callable[[], Iterable[InputExample]],
        tokenizer: FullTokenizer,
        *,
        buckets: Sequence[int],
        window_tokens: int = 1 << 17,
    ) -> None:
        self.buckets = resolve_buckets(buckets, buckets[-1])
        self.error: Exception | None = None
        self._examples = examples
        self._tokenizer = tokenizer
        self._window_tokens = window_tokens

    def __call__(self, params: Params) -> tf.data.Dataset:
        """The dataset; of `params` it reads `batch_size`."""
        batch_size = int(params["batch_size"])
        chunks = tf.data.Dataset.from_generator(
            self._chunks,
            output_signature=(
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None], tf.string),
                tf.TensorSpec([None], tf.string),
            ),
        )
        encoded = chunks.map(
            _as_it_is(self._encode), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        windows = _windows(encoded, self._window_tokens)
        batches = windows.flat_map(
            _as_it_is(lambda window: _bucketed(window, self.buckets, batch_size))
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def _chunks(self) -> Iterator[tuple[list[int], list[bytes], list[bytes]]]:
        ids: list[int] = []
        first: list[bytes] = []
        second: list[bytes] = []
        size = 0
        # A piece is at least a byte: so a chunk holds no more of them than a window may.
        most = min(_CHUNK_BYTES, self._window_tokens)
        self.error = None
        try:
            for example in self._examples():
                ids.append(example.unique_id)
                first.append(utf8(example.text_a))
                second.append(utf8(example.text_b or ""))
                size += len(first[-1]) + len(second[-1])
                if len(ids) == _CHUNK_ROWS or size >= most:
                    yield ids, first, second
                    ids, first, second, size = [], [], [], 0
            if ids:
                yield ids, first, second
        except Exception as error:
            self.error = error
            raise

    def _encode(
        self, unique_ids: tf.Tensor, first: tf.Tensor, second: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Rows of [CLS] a [SEP] b [SEP], truncated, of one chunk; flat, see `_windows`."""
        count = tf.size(unique_ids, tf.int64)
        pieces = self._tokenizer(tf.concat([first, second], axis=0))
        lengths = pieces.row_lengths()
        kept_a, kept_b = _kept_lengths(lengths[:count], lengths[count:], self.buckets[-1])
        starts = pieces.row_starts()
        a = _slices(pieces.values, starts[:count], kept_a)
        b = _slices(pieces.values, starts[count:], kept_b)
        cls, sep = self._tokenizer.convert_tokens_to_ids([CLS, SEP])
        column = tf.ones([count, 1], tf.int32)
        has_b = tf.cast(kept_b > 0, tf.int64)
        seps_b = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(has_b)], sep), has_b)
        rows = tf.concat([cls * column, a, sep * column, b, seps_b], axis=1)
        return {
            "values": rows.values,
            "lengths": rows.row_lengths(),
            "unique_ids": unique_ids,
            "type_starts": tf.cast(kept_a + 2, tf.int32),
            "tokens_lost": tf.cast(lengths[:count] + lengths[count:] - kept_a - kept_b, tf.int32),
        }


def _kept_lengths(
    length_a: tf.Tensor, length_b: tf.Tensor, seq_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """`features.kept_lengths` of a batch, int64 [N] each."""
    limit = seq_length - tf.where(length_b > 0, 3, 2)
    limit = tf.cast(limit, tf.int64)
    kept_b = tf.minimum(length_b, tf.maximum(limit // 2, limit - length_a))
    return tf.minimum(length_a, limit - kept_b), kept_b


def _slices(values: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    indices = tf.ragged.range(starts, starts + lengths)
    return indices.with_values(tf.gather(values, indices.values))


def _windows(chunks: tf.data.Dataset, window_tokens: int) -> tf.data.Dataset:
    """Joins chunks until they hold `window_tokens` tokens or the input ends."""
    spec = chunks.element_spec
    empty = {key: tf.zeros([0], value.dtype) for key, value in spec.items()}
    flagged = chunks.map(_as_it_is(lambda chunk: (chunk, False)))
    flagged = flagged.concatenate(tf.data.Dataset.from_tensors((empty, True)))

    def add(
        held: dict[str, tf.Tensor], chunk_and_end: tuple[dict[str, tf.Tensor], tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        chunk, end = chunk_and_end
        joined = {key: tf.concat([held[key], chunk[key]], axis=0) for key in held}
        full = end | (tf.size(joined["values"]) >= window_tokens)
        return tf.cond(full, lambda: (empty, joined), lambda: (joined, empty))

    windows = flagged.scan(empty, _as_it_is(add))
    return windows.filter(_as_it_is(lambda window: tf.size(window["lengths"]) > 0))


def _bucketed(
    window: dict[str, tf.Tensor], buckets: Sequence[int], batch_size: int
) -> tf.data.Dataset:
    """The batches of a window, shortest bucket first; each example in the smallest that fits."""
    rows = tf.RaggedTensor.from_row_lengths(window["values"], window["lengths"], validate=False)
    bucket_of_row = tf.searchsorted(tf.constant(buckets, tf.int64), window["lengths"])
    datasets = []
    for index, length in enumerate(buckets):
        members = tf.where(bucket_of_row == index)[:, 0]
        position = tf.range(length)
        lengths = tf.cast(tf.gather(window["lengths"], members), tf.int32)[:, None]
        mask = position < lengths
        type_b = mask & (position >= tf.gather(window["type_starts"], members)[:, None])
        columns = {
            "unique_ids": tf.gather(window["unique_ids"], members),
            "input_word_ids": tf.gather(rows, members).to_tensor(shape=[None, length]),
            "input_mask": tf.cast(mask, tf.int32),
            "input_type_ids": tf.cast(type_b, tf.int32),
            "tokens_lost": tf.gather(window["tokens_lost"], members),
        }
        datasets.append(_fixed_batches(columns, batch_size))
    joined = datasets[0]
    for dataset in datasets[1:]:
        joined = joined.concatenate(dataset)
    return joined


def _fixed_batches(columns: Mapping[str, Any], batch_size: int) -> tf.data.Dataset:
    """Cuts columns [N, …] into batches [B, …], the last filled up with masked rows."""
    count = tf.shape(columns["unique_ids"])[0]
    missing = -count % batch_size

    def batches(name: str, column: tf.Tensor) -> tf.Tensor:
        column = tf.convert_to_tensor(column)
        fill = FILLER_ID if name == "unique_ids" else 0
        paddings = [[0, missing]] + [[0, 0]] * (column.shape.rank - 1)
        padded = tf.pad(column, paddings, constant_values=tf.cast(fill, column.dtype))
        return tf.reshape(padded, [-1, batch_size, *column.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(
        {name: batches(name, column) for name, column in columns.items()}
    )
