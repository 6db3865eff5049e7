"""input_fn: examples to static batches, as a tf.data.Dataset.

Text is tokenised in the graph and laid out in rows; `bucketing` makes batches of them.

Shape legend: `N` examples of a chunk or window, `B` batch_size, `S` the length of the bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.bucketing import (
    BatchShapes,
    as_it_is,
    batched,
    fixed_batches,
    resolve_buckets,
    sorting_windows,
)
from bert_features.errors import ConfigError
from bert_features.examples import InputExample
from bert_features.features import InputFeatures
from bert_features.long_text import Layout, LongText, WordTable
from bert_features.tokenization import FullTokenizer, utf8
from bert_features.vocabulary import CLS, SEP
from bert_features.words import Units, WordSplit, find_words, text_lengths

# One call of the tokenizer's graph: enough rows to make its overhead small (as many as in
# scripts/benchmark_tokenizer.py), and a bound on their text.
_CHUNK_ROWS = 1024
_CHUNK_BYTES = 1 << 18

Params = Mapping[str, Any]
InputFn = Callable[[Params], tf.data.Dataset]


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int) -> InputFn:
    """An input_fn over features in memory, all of one length, as the official script has it.

    Args:
      features: what `convert_examples_to_features` made.
      seq_length: the length it made them of.

    Returns:
      A function of `params`, of which it reads `batch_size`, giving a dataset of
      {unique_ids int64 [B]; input_word_ids, input_mask, input_type_ids int32 [B, S]}.

    Raises:
      ConfigError: a feature is of another length, or its id is not an integer.
    """
    for feature in features:
        if not isinstance(feature.unique_id, int):
            raise ConfigError(
                f"the id of an example is {feature.unique_id!r}; an Estimator's batches hold "
                "integers, number the examples (FeatureExtractor and extract keep ids of any kind)"
            )
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
        return fixed_batches(columns, int(params["batch_size"]))

    return input_fn


@dataclass
class Pending:
    """An example that is on its way through the pipeline.

    Attributes:
      example: the example.
      words: its words, once it is tokenised; None unless words are wanted.
    """

    example: InputExample
    words: WordTable | None = None


class TextInputFn:
    """An input_fn over texts: tokenised in the graph, bucketed, streamed.

    Memory is bounded by `window_tokens`, whatever the number of examples. Calling it gives a
    dataset of {unique_ids int64 [B], the position of each row's example in the input;
    input_word_ids, input_mask, input_type_ids int32 [B, S]; tokens_lost int32 [B], pieces that
    truncation cut off}, S one of the buckets. With another policy than `truncate`, or with words,
    there are also {window, num_windows, own_starts, own_ends int32 [B]; word_indices int32 [B, S]},
    see `long_text.Rows`. All examples of one sorting window come before those of the next, and so
    do all rows of an example.

    Args:
      examples: gives a fresh iterator over the examples each time a dataset is iterated.
      tokenizer: the tokenizer of the checkpoint.
      buckets: the lengths of rows, ascending; the last is the longest.
      window_tokens: how many tokens are sorted into buckets together.
      long_text: what becomes of examples that do not fit the longest row.
      words: how texts are split into words, if words are wanted; examples that came as words keep
        theirs.
      pending: where to keep the examples on their way, by position, and their words; whoever takes
        the batches removes them.

    Attributes:
      error: what `examples` or the long text policy raised, if they did. TensorFlow's own error
        carries only its text.
    """

    def __init__(
        self,
        examples: Callable[[], Iterable[InputExample]],
        tokenizer: FullTokenizer,
        *,
        buckets: Sequence[int],
        window_tokens: int = 1 << 17,
        long_text: LongText | None = None,
        words: WordSplit | None = None,
        pending: dict[int, Pending] | None = None,
    ) -> None:
        self.buckets = resolve_buckets(buckets, buckets[-1])
        self.error: Exception | None = None
        self._pending = pending
        self._examples = examples
        self._tokenizer = tokenizer
        self._window_tokens = window_tokens
        self._long_text = long_text or LongText(seq_length=self.buckets[-1])
        self._words = words
        self._cls, self._sep = tokenizer.convert_tokens_to_ids([CLS, SEP])
        self._layout = Layout(self._long_text, cls_id=self._cls, sep_id=self._sep)

    def __call__(self, params: Params) -> tf.data.Dataset:
        """The dataset.

        Args:
          params: `batch_size`, the rows of each batch; or `batch_tokens`, the tokens of each, and
            `num_devices`, what the rows are a multiple of (1 if it is not there).
        """
        shapes = self.shapes(params)
        windows = sorting_windows(self.rows(), self._window_tokens)
        batches = windows.flat_map(as_it_is(lambda window: batched(window, shapes)))
        return batches.prefetch(tf.data.AUTOTUNE)

    def shapes(self, params: Params) -> BatchShapes:
        """The shapes that the batches have; of `params` see the call."""
        if "batch_size" in params:
            return BatchShapes.by_rows(self.buckets, int(params["batch_size"]))
        tokens, multiple = int(params["batch_tokens"]), int(params.get("num_devices", 1))
        return BatchShapes.by_tokens(self.buckets, tokens, multiple)

    def rows(self) -> tf.data.Dataset:
        """The rows before they are sorted into buckets: dicts of flat columns, chunk by chunk.

        {values int32 [T], the ids of all rows; lengths int64 [R]; unique_ids int64 [R]; type_starts
        int32 [R]; tokens_lost int32 [R]} and, where they are needed, the others of the batches.
        """
        if self._words is None and self._long_text.policy == "truncate":
            chunks = tf.data.Dataset.from_generator(
                self._text_chunks,
                output_signature=(
                    tf.TensorSpec([None], tf.int64),
                    tf.TensorSpec([None], tf.string),
                    tf.TensorSpec([None], tf.string),
                ),
            )
            encode: Callable[..., dict[str, tf.Tensor]] = self._encode
        else:
            chunks = tf.data.Dataset.from_generator(self._unit_chunks, output_signature=_UNIT_CHUNK)
            encode = self._encode_units
        return chunks.map(as_it_is(encode), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def _text_chunks(self) -> Iterator[tuple[range, list[bytes], list[bytes]]]:
        for positions, examples in self._chunks():
            yield (
                positions,
                [utf8(example.text_a) for example in examples],
                [utf8(example.text_b or "") for example in examples],
            )

    def _unit_chunks(self) -> Iterator[dict[str, Any]]:
        for positions, examples in self._chunks():
            units = Units.of(examples, self._words)
            yield {
                "positions": positions,
                "units": [utf8(unit) for unit in units.strings],
                "unit_starts": units.starts,
                "unit_ends": units.ends,
                "per_text": units.per_text,
                "are_words": units.are_words,
            }

    def _chunks(self) -> Iterator[tuple[range, list[InputExample]]]:
        """Examples by the chunk, each with the positions of its first and last."""
        # A piece is at least a byte: so a chunk holds no more of them than a window may.
        most = min(_CHUNK_BYTES, self._window_tokens)
        held: list[InputExample] = []
        first = size = 0
        try:
            for position, example in enumerate(self._examples()):
                if self._pending is not None:
                    self._pending[position] = Pending(example)
                held.append(example)
                size += len(example.text_a) + len(example.text_b or "")
                if len(held) == _CHUNK_ROWS or size >= most:
                    yield range(first, position + 1), held
                    held, first, size = [], position + 1, 0
            if held:
                yield range(first, first + len(held)), held
        except Exception as error:
            self.error = error
            raise

    def _encode(
        self, positions: tf.Tensor, first: tf.Tensor, second: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Rows of [CLS] a [SEP] b [SEP], truncated, of one chunk of texts."""
        rows, type_starts, lost = pack(self._tokenizer, first, second, seq_length=self.buckets[-1])
        return {
            "values": rows.values,
            "lengths": rows.row_lengths(),
            "unique_ids": positions,
            "type_starts": type_starts,
            "tokens_lost": lost,
        }

    def _encode_units(self, chunk: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Rows of one chunk of units, by the long text policy."""
        units = chunk["units"]

        def with_offsets() -> tuple[tf.Tensor, ...]:
            ids, starts, ends = self._tokenizer.tokenize_with_offsets(units)
            return ids.values, ids.row_lengths(), starts.values, ends.values

        def without_offsets() -> tuple[tf.Tensor, ...]:
            ids = self._tokenizer(units)
            none = tf.zeros_like(ids.values)
            return ids.values, ids.row_lengths(), none, none

        if self._words is None:
            pieces = without_offsets()
        else:
            pieces = tf.cond(tf.reduce_all(chunk["are_words"]), without_offsets, with_offsets)
        names = ["positions", "unit_starts", "unit_ends", "per_text", "are_words"]
        columns = tf.numpy_function(
            self._lay_out, [*pieces, *(chunk[name] for name in names)], list(_ROWS.values())
        )
        for column in columns:
            column.set_shape([None])
        return dict(zip(_ROWS, columns, strict=True))

    def _lay_out(self, *columns: np.ndarray) -> list[np.ndarray]:
        """`Layout.rows` of a chunk; its words go to the pending examples."""
        try:
            return self._laid_out(*columns)
        except Exception as error:
            self.error = error
            raise

    def _laid_out(
        self,
        values: np.ndarray,
        unit_lengths: np.ndarray,
        piece_starts: np.ndarray,
        piece_ends: np.ndarray,
        positions: np.ndarray,
        unit_starts: np.ndarray,
        unit_ends: np.ndarray,
        per_text: np.ndarray,
        are_words: np.ndarray,
    ) -> list[np.ndarray]:
        words = None
        if self._words is not None:
            words = find_words(
                unit_lengths=unit_lengths,
                unit_starts=unit_starts,
                unit_ends=unit_ends,
                per_text=per_text,
                are_words=are_words,
                begins_word=self._tokenizer.begins_word[values],
                piece_starts=piece_starts,
                piece_ends=piece_ends,
            )
        rows, tables = self._layout.rows(
            values, text_lengths(unit_lengths, per_text), words, lambda i: self._name(positions[i])
        )
        if self._pending is not None:
            for position, table in zip(positions.tolist(), tables, strict=False):
                self._pending[position].words = table
        return [
            rows.values,
            rows.word_indices,
            rows.lengths,
            positions[rows.examples],
            rows.type_starts,
            rows.tokens_lost,
            rows.windows,
            rows.num_windows,
            rows.own_starts,
            rows.own_ends,
        ]

    def _name(self, position: int) -> str:
        if self._pending is None:
            return f"example {position}"
        return f"example {self._pending[int(position)].example.unique_id!r}"


_UNIT_CHUNK = {
    "positions": tf.TensorSpec([None], tf.int64),
    "units": tf.TensorSpec([None], tf.string),
    "unit_starts": tf.TensorSpec([None], tf.int32),
    "unit_ends": tf.TensorSpec([None], tf.int32),
    "per_text": tf.TensorSpec([None], tf.int64),
    "are_words": tf.TensorSpec([None], tf.bool),
}
# The columns of rows, as `_laid_out` returns them.
_ROWS = {
    "values": tf.int32,
    "word_indices": tf.int32,
    "lengths": tf.int64,
    "unique_ids": tf.int64,
    "type_starts": tf.int32,
    "tokens_lost": tf.int32,
    "window": tf.int32,
    "num_windows": tf.int32,
    "own_starts": tf.int32,
    "own_ends": tf.int32,
}


def pack(
    tokenizer: FullTokenizer, first: tf.Tensor, second: tf.Tensor, *, seq_length: int
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Tokenises texts into rows [CLS] a [SEP] b [SEP], truncated as the official script does.

    Args:
      tokenizer: of the checkpoint.
      first: string [B], text_a of each example.
      second: string [B], text_b; empty for none.
      seq_length: the tokens of the longest row.

    Returns:
      The ids, int32 ragged [B, tokens]; where text_b begins in each row, int32 [B]; and the pieces
      that each example lost, int32 [B].
    """
    count = tf.size(first, tf.int64)
    pieces = tokenizer(tf.concat([first, second], axis=0))
    lengths = pieces.row_lengths()
    kept_a, kept_b = _kept_lengths(lengths[:count], lengths[count:], seq_length)
    starts = pieces.row_starts()
    a = _slices(pieces.values, starts[:count], kept_a)
    b = _slices(pieces.values, starts[count:], kept_b)
    cls, sep = tokenizer.convert_tokens_to_ids([CLS, SEP])
    column = tf.ones([count, 1], tf.int32)
    has_b = tf.cast(kept_b > 0, tf.int64)
    seps_b = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(has_b)], sep), has_b)
    rows = tf.concat([cls * column, a, sep * column, b, seps_b], axis=1)
    lost = lengths[:count] + lengths[count:] - kept_a - kept_b
    return rows, tf.cast(kept_a + 2, tf.int32), tf.cast(lost, tf.int32)


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
