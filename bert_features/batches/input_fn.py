"""TextInputFn: a stream of examples becomes a stream of static batches.

Texts are tokenised in the graph, by the chunk, and laid out in rows; `bucketing` makes batches of
the rows.

Shape legend: `R` rows, `T` tokens of all these rows, `B` rows of a batch, `S` length of the bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import (
    BatchShapes,
    Columns,
    Members,
    cut_batches,
    join_columns,
    resolve_buckets,
)
from bert_features.batches.long_text import LongText
from bert_features.batches.pieces import tokenize_units
from bert_features.batches.queries_documents import QueriesAndDocuments
from bert_features.batches.row_plan import Rows
from bert_features.batches.rows import Layout, rows_to_score
from bert_features.batches.spans import find_spans, place_spans
from bert_features.batches.unit_tables import UnitTable
from bert_features.batches.words import (
    PiecePlaces,
    PieceRuns,
    Units,
    WordSplit,
    check_split,
    find_words,
    locate_words,
    text_lengths,
)
from bert_features.config.packing import ATTENDED, SCORED, SPAN_BOUNDS, TARGET_IDS
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenizer import Tokenizer

# Bounds of one call of the tokenizer's graph: enough rows to make its overhead small (as many as
# in benchmarks/parts.py tokenizer), and a limit on their text.
_CHUNK_ROWS = 1024
_CHUNK_CHARACTERS = 1 << 18

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Neighbouring examples, tokenised and laid out together; or a whole megabatch.

    Attributes:
      examples: in the order of the input.
      columns: their rows as flat columns: {values int32 [T], the ids of all rows; lengths int64
        [R]; unique_ids int64 [R]; type_starts int32 [R]; tokens_lost int32 [R]}, and the further
        columns of the batches where they are needed.
      units: their words and spans, by level, each if an output has them.
      separators: number of [SEP]s between the texts of a pair.
      everyone: gives the results that the megabatch stands for, from those of its examples, or from
        None if it has none: where texts that are known were left out, those of all.
    """

    examples: list[InputExample]
    columns: Columns
    units: dict[str, UnitTable] = field(default_factory=dict)
    separators: int = 1
    everyone: Callable[[Any], Any] = lambda results: results

    @classmethod
    def join(cls, chunks: Sequence["Chunk"]) -> "Chunk":
        """The examples of several chunks."""
        return cls(
            [example for chunk in chunks for example in chunk.examples],
            join_columns([chunk.columns for chunk in chunks]),
            {n: UnitTable.join([each.units[n] for each in chunks]) for n in chunks[0].units},
            chunks[0].separators,
        )


Megabatch = Chunk  # examples whose rows are sorted by length together


@dataclass(frozen=True)
class Batch:
    """A static batch.

    Attributes:
      columns: arrays [B] and [B, S], see `TextInputFn` and, for packed ones, `cut_batches`.
      members: the rows of the megabatch that stand in it.
      megabatch: the megabatch that they are taken from.
    """

    columns: Columns
    members: Members
    megabatch: Megabatch


class TextInputFn:
    """An input_fn over texts: tokenised in the graph, bucketed, streamed.

    Memory is bounded by `megabatch_tokens`, whatever the number of examples. A call gives a
    tf.data.Dataset of {unique_ids int64 [B], the position of each row's example in the input;
    input_word_ids, input_mask, input_type_ids int32 [B, S]; tokens_lost int32 [B], pieces that
    truncation cut off}, S one of the buckets. With long_text 'window', or with words, there are
    also {window, num_windows, own_starts, own_ends int32 [B]; word_indices int32 [B, S]}, see
    `rows.Rows`. All rows of one megabatch come before the rows of the next, and all rows of an
    example lie in one megabatch.

    Args:
      examples: gives a fresh iterator over the examples each time the input is read.
      tokenizer: the tokenizer of the checkpoint.
      buckets: lengths of rows, ascending; the last is the longest.
      megabatch_tokens: number of tokens that are sorted into buckets together.
      long_text: what happens to examples that do not fit the longest row.
      words: how texts are split into words, if an output has words. Examples that came as words
        keep theirs.
      mask_id: the id of [MASK], if [MASK] in a text is that token; None if it is characters.
      with_spans: whether an output has spans.
      chunks: for examples without spans of their own the pieces of a chunk, and what two share.
      scores: whether each piece is masked in a row of its own, see `rows_to_score`.
      segment: the type of the tokens of a single text.
      sides: what is done to documents and queries for late interaction.
      stages: measures reading, tokenizing and batching.

    Attributes:
      buckets: lengths of rows, ascending.
      megabatch_tokens: number of tokens that are sorted into buckets together.
      error: the error that `examples` or the long text policy raised, if any. TensorFlow's own
        error carries only its text.
    """

    def __init__(
        self,
        examples: Callable[[], Iterable[InputExample]],
        tokenizer: Tokenizer,
        *,
        buckets: Sequence[int],
        megabatch_tokens: int = 1 << 17,
        long_text: LongText | None = None,
        words: WordSplit | None = None,
        mask_id: int | None = None,
        with_spans: bool = False,
        chunks: tuple[int, int] | None = None,
        scores: bool = False,
        segment: int = 0,
        sides: QueriesAndDocuments | None = None,
        stages: StageClock | None = None,
    ) -> None:
        self.buckets = resolve_buckets(buckets, buckets[-1])
        self.error: Exception | None = None
        self._examples = examples
        self._tokenizer = tokenizer
        self.megabatch_tokens = megabatch_tokens
        self._long_text = long_text or LongText(seq_length=self.buckets[-1])
        self._words, self._mask_id, self._scores = words, mask_id, scores
        self._with_spans, self._chunks = with_spans, chunks
        self._segment, self._sides = segment, sides
        self._stages = stages or StageClock()
        self._frame = frame = tokenizer.frame
        self._layout = Layout(
            self._long_text,
            cls_id=frame.cls_id,
            sep_id=frame.sep_id,
            separators=frame.separators,
        )

    def __call__(self, params: Params) -> tf.data.Dataset:
        """The dataset.

        Args:
          params: `batch_size`, the rows of each batch, or `batch_tokens`, the tokens of each; and
            `num_devices`, which divides the rows. Without `num_devices` a batch by rows has all
            its rows, the last one too, and a batch by tokens may have any number. With
            `whole_batches` every batch has all its rows; with `uniform_batches` they are of one
            bucket. `batch_cost`: see `BatchShapes`.
        """
        batches = tf.data.Dataset.from_generator(
            lambda: self._kept_batches(params), output_signature=self._signature()
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def megabatches(self) -> Iterator[Megabatch]:
        """The examples and their rows, by the megabatch."""
        held: list[Chunk] = []
        tokens = 0
        for chunk in self.chunks():
            held.append(chunk)
            tokens += len(chunk.columns["values"])
            if tokens >= self.megabatch_tokens:
                yield self._joined(held)
                held, tokens = [], 0
        if held:
            yield self._joined(held)

    def stream(
        self, params: Params, megabatches: Iterable[Megabatch] | None = None
    ) -> Iterator[Batch]:
        """The batches, without tf.data.

        Args:
          params: as for a call. With `packed_batches` several rows of a megabatch share a row.
          megabatches: what `megabatches` gives, if a caller has it already. One without examples
            makes a batch without columns.
        """
        shapes = self.shapes(params)
        for megabatch in self.megabatches() if megabatches is None else megabatches:
            if not megabatch.examples:
                yield Batch({}, Members.none(), megabatch)
            cut = cut_batches(
                megabatch.columns,
                shapes,
                pad_id=self._frame.pad_id,
                has_types=self._frame.has_types,
                segment=self._segment,
            )
            for members, columns in self._stages.timed("batch", cut):
                yield Batch(columns, members, megabatch)

    def batches(self, params: Params) -> Iterator[Columns]:
        """The batches of the dataset as NumPy arrays, without tf.data; `params` as for a call."""
        return (batch.columns for batch in self.stream(params))

    def shapes(self, params: Params) -> BatchShapes:
        """The shapes that the batches have; `params` as for a call."""
        if "batch_size" in params:
            rows = int(params["batch_size"])
            shapes = BatchShapes.by_rows(self.buckets, rows, int(params.get("num_devices", rows)))
        else:
            tokens, multiple = int(params["batch_tokens"]), int(params.get("num_devices", 1))
            shapes = BatchShapes.by_tokens(self.buckets, tokens, multiple)
        return replace(
            shapes,
            whole=bool(params.get("whole_batches")),
            uniform=bool(params.get("uniform_batches")),
            packed=bool(params.get("packed_batches")),
            batch_cost=int(params.get("batch_cost", 0)),
        )

    def chunks(self) -> Iterator[Chunk]:
        """The examples and their rows, in the order of the input, before rows are sorted."""
        for first, examples in self.read():
            yield self.lay_out(examples, first)

    def _joined(self, chunks: Sequence[Chunk]) -> Megabatch:
        with self._stages.timing("tokenize"):
            return Megabatch.join(chunks)

    def lay_out(self, examples: list[InputExample], first: int) -> Chunk:
        """Tokenises examples and lays them out; `first` is the number of the first example."""
        with self._stages.timing("tokenize"):
            rows, units = self._rows(examples)
            return Chunk(examples, self._columns(rows, first), units, self._frame.separators)

    def read(self) -> Iterator[tuple[int, list[InputExample]]]:
        """Reads examples by the chunk: the number of its first example, and its examples."""
        return self._stages.timed("read", self._read())

    def _read(self) -> Iterator[tuple[int, list[InputExample]]]:
        # Every piece is at least a character, and may stand in several rows. So a chunk of several
        # examples holds no more tokens than a megabatch may.
        copies = self._long_text.max_copies
        max_size = min(_CHUNK_CHARACTERS, self.megabatch_tokens)
        held: list[InputExample] = []
        first = size = 0
        for example in self._examples():
            held.append(example)
            characters = len(example.text_a) + len(example.text_b or "")
            tokens = characters + self._frame.max_tokens
            size += tokens * (min(tokens, self.buckets[-1]) if self._scores else copies)
            if len(held) == _CHUNK_ROWS or size >= max_size:
                yield first, held
                first, held, size = first + len(held), [], 0
        if held:
            yield first, held

    def _rows(self, examples: list[InputExample]) -> tuple[Rows, dict[str, UnitTable]]:
        """Tokenises examples and lays them out: rows, and words and spans if wanted."""
        alone = self._tokenizer.splits_words
        check_split(self._words, examples, splits_words=alone)
        units = Units.of(examples, self._words) if alone else Units.whole_texts(examples)
        with_places = self._with_spans or (self._words is not None and not all(units.are_words))
        values, lengths, starts, ends = tokenize_units(
            self._tokenizer, units, self._mask_id, with_places=with_places
        )
        sizes = text_lengths(lengths, np.array(units.per_text, np.int64))

        def pieces() -> PiecePlaces:
            begins = np.repeat(units.begins, lengths) if with_places else 0
            return PiecePlaces(
                np.repeat(np.arange(len(sizes)), sizes),
                starts + begins,
                ends + begins,
                self._tokenizer.begins_word[values] & alone,
            )

        def name(i: int) -> str:
            return f"example {examples[i].unique_id!r}"

        words: PieceRuns | None = None
        if self._words is not None and alone:
            words = find_words(units, lengths, pieces())
        elif self._words is not None:
            words = locate_words(examples, pieces())
        cuts = None if self._sides is None else self._sides.cuts(examples)
        rows, table = self._layout.rows(values, sizes, words, name, cuts)
        tables = {} if table is None else {"word": table}
        if self._with_spans:
            spans = find_spans(examples, pieces(), self._chunks)
            rows, tables["span"] = place_spans(rows, spans, len(values))
        if self._sides is not None:
            rows = self._sides.marked(rows, examples)
        if self._scores and self._mask_id is not None:
            special_ids, by_word = self._frame.special_ids, self._words is not None
            rows = rows_to_score(rows, self._mask_id, special_ids, by_word=by_word)
        return rows, tables

    def _columns(self, rows: Rows, first: int) -> Columns:
        """Rows as columns; `first` is the position of their first example in the input."""
        names = ["values", "lengths", "type_starts", "tokens_lost"]
        if self._needs_window_columns:
            names += _WINDOW_COLUMNS
        names += [
            n for n in (*SPAN_BOUNDS, TARGET_IDS, ATTENDED, SCORED) if getattr(rows, n) is not None
        ]
        columns = {"unique_ids": first + rows.examples}
        return columns | {name: getattr(rows, name) for name in names}

    @property
    def _needs_window_columns(self) -> bool:
        return self._words is not None or self._long_text.policy == "window" or self._scores

    def _kept_batches(self, params: Params) -> Iterator[Columns]:
        try:
            yield from self.batches(params)
        except Exception as error:
            self.error = error
            raise

    def _signature(self) -> dict[str, tf.TensorSpec]:
        columns = _COLUMNS | (_WINDOW_COLUMNS if self._needs_window_columns else {})
        return {name: tf.TensorSpec([None] * rank, kind) for name, (rank, kind) in columns.items()}


# The columns of a batch: rank and dtype.
_COLUMNS = {
    "unique_ids": (1, tf.int64),
    "input_word_ids": (2, tf.int32),
    "input_mask": (2, tf.int32),
    "input_type_ids": (2, tf.int32),
    "tokens_lost": (1, tf.int32),
}
_WINDOW_COLUMNS = {
    "word_indices": (2, tf.int32),
    "window": (1, tf.int32),
    "num_windows": (1, tf.int32),
    "own_starts": (1, tf.int32),
    "own_ends": (1, tf.int32),
}
