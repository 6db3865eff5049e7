"""input_fn: examples to static batches, as a tf.data.Dataset.

Text is tokenised in the graph and laid out in rows; `bucketing` makes batches of them.

Shape legend: `N` examples of a chunk or window, `B` batch_size, `S` the length of the bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import (
    BatchShapes,
    Columns,
    batched,
    fixed_batches,
    resolve_buckets,
    sorting_windows,
)
from bert_features.batches.long_text import Layout, LongText, Rows, WordTable
from bert_features.batches.words import Units, WordSplit, find_words, text_lengths
from bert_features.errors import ConfigError
from bert_features.official.features import InputFeatures
from bert_features.readers.examples import InputExample
from bert_features.text.tokenization import FullTokenizer, utf8
from bert_features.text.vocabulary import CLS, SEP

# One call of the tokenizer's graph: enough rows to make its overhead small (as many as in
# scripts/benchmark_tokenizer.py), and a bound on their text.
_CHUNK_ROWS = 1024
_CHUNK_CHARACTERS = 1 << 18
_MOST_SPECIALS = 3  # [CLS] and two [SEP]s

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
      ConfigError: a feature is of another length, or its id is not an integer from 0.
    """
    for feature in features:
        if not isinstance(feature.unique_id, int) or feature.unique_id < 0:
            raise ConfigError(
                f"the id of an example is {feature.unique_id!r}; an Estimator's batches hold "
                "integers from 0, number the examples (FeatureExtractor and extract keep ids of "
                "any kind)"
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
          params: `batch_size`, the rows of each batch, or `batch_tokens`, the tokens of each; and
            `num_devices`, what the rows are a multiple of. Without it a batch by rows has all of
            them, the last one too; a batch by tokens may have any number. With `whole_batches` each
            has all of its rows.
        """
        batches = tf.data.Dataset.from_generator(
            lambda: self._kept_batches(params), output_signature=self._signature()
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def batches(self, params: Params) -> Iterator[Columns]:
        """The batches of the dataset as NumPy arrays, without tf.data; `params` are the call's."""
        shapes = self.shapes(params)
        for window in sorting_windows(self.rows(), self._window_tokens):
            yield from batched(window, shapes)

    def shapes(self, params: Params) -> BatchShapes:
        """The shapes that the batches have; of `params` see the call."""
        if "batch_size" in params:
            rows = int(params["batch_size"])
            shapes = BatchShapes.by_rows(self.buckets, rows, int(params.get("num_devices", rows)))
        else:
            tokens, multiple = int(params["batch_tokens"]), int(params.get("num_devices", 1))
            shapes = BatchShapes.by_tokens(self.buckets, tokens, multiple)
        return replace(shapes, whole=bool(params.get("whole_batches")))

    def rows(self) -> Iterator[Columns]:
        """The rows before they are sorted into buckets, chunk by chunk: flat columns.

        {values int32 [T], the ids of all rows; lengths int64 [R]; unique_ids int64 [R]; type_starts
        int32 [R]; tokens_lost int32 [R]} and, where they are needed, the others of the batches.
        """
        for positions, examples in self._chunks():
            units = Units.of(examples, self._words)
            rows, tables = self._lay_out(units, positions)
            if self._pending is not None:
                for position, table in zip(positions, tables, strict=False):
                    self._pending[position].words = table
            columns = {
                "values": rows.values,
                "lengths": rows.lengths,
                "unique_ids": positions.start + rows.examples,
                "type_starts": rows.type_starts,
                "tokens_lost": rows.tokens_lost,
            }
            if self._may_need_more:
                columns |= {
                    "word_indices": rows.word_indices,
                    "window": rows.windows,
                    "num_windows": rows.num_windows,
                    "own_starts": rows.own_starts,
                    "own_ends": rows.own_ends,
                }
            yield columns

    @property
    def _may_need_more(self) -> bool:
        return self._words is not None or self._long_text.policy == "window"

    def _kept_batches(self, params: Params) -> Iterator[Columns]:
        try:
            yield from self.batches(params)
        except Exception as error:
            self.error = error
            raise

    def _signature(self) -> dict[str, tf.TensorSpec]:
        names = _COLUMNS | (_MORE_COLUMNS if self._may_need_more else {})
        return {name: tf.TensorSpec([None] * rank, kind) for name, (rank, kind) in names.items()}

    def _lay_out(self, units: Units, positions: range) -> tuple[Rows, list[WordTable]]:
        texts = tf.constant([utf8(unit) for unit in units.strings], tf.string)
        per_text = np.array(units.per_text, np.int64)
        words = None
        if self._words is None or all(units.are_words):
            ids = self._tokenizer(texts)
            values, lengths = ids.values.numpy(), ids.row_lengths().numpy()
            starts = ends = np.zeros_like(values)
        else:
            pieces = self._tokenizer.tokenize_with_offsets(texts)
            values, lengths = pieces.ids.values.numpy(), pieces.ids.row_lengths().numpy()
            starts, ends = pieces.starts.values.numpy(), pieces.ends.values.numpy()
        if self._words is not None:
            words = find_words(
                unit_lengths=lengths,
                unit_starts=np.array(units.starts, np.int32),
                unit_ends=np.array(units.ends, np.int32),
                per_text=per_text,
                are_words=np.array(units.are_words, bool),
                begins_word=self._tokenizer.begins_word[values],
                piece_starts=starts,
                piece_ends=ends,
            )
        return self._layout.rows(
            values, text_lengths(lengths, per_text), words, lambda i: self._name(positions[i])
        )

    def _chunks(self) -> Iterator[tuple[range, list[InputExample]]]:
        """Examples by the chunk, each with the positions of its first and last."""
        # A piece is at least a character, and stands in so many rows: so a chunk of several
        # examples holds no more tokens than a sorting window may.
        copies = self._long_text.most_copies
        most = min(_CHUNK_CHARACTERS, self._window_tokens)
        held: list[InputExample] = []
        first = size = 0
        for position, example in enumerate(self._examples()):
            if self._pending is not None:
                self._pending[position] = Pending(example)
            held.append(example)
            size += copies * (len(example.text_a) + len(example.text_b or "") + _MOST_SPECIALS)
            if len(held) == _CHUNK_ROWS or size >= most:
                yield range(first, position + 1), held
                held, first, size = [], position + 1, 0
        if held:
            yield range(first, first + len(held)), held

    def _name(self, position: int) -> str:
        if self._pending is None:
            return f"example {position}"
        return f"example {self._pending[int(position)].example.unique_id!r}"


# The columns of a batch: rank and dtype.
_COLUMNS = {
    "unique_ids": (1, tf.int64),
    "input_word_ids": (2, tf.int32),
    "input_mask": (2, tf.int32),
    "input_type_ids": (2, tf.int32),
    "tokens_lost": (1, tf.int32),
}
_MORE_COLUMNS = {
    "word_indices": (2, tf.int32),
    "window": (1, tf.int32),
    "num_windows": (1, tf.int32),
    "own_starts": (1, tf.int32),
    "own_ends": (1, tf.int32),
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
