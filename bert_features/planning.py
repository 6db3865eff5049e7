"""plan(): what a run would do, by tokenising its input and computing nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert_features.config import ExtractConfig
from bert_features.errors import BertFeaturesError
from bert_features.examples import read_examples
from bert_features.input_pipeline import Pending, TextInputFn
from bert_features.outputs import ITEM_SIZES, OutputSpec
from bert_features.preparation import Preparation

# Suggested lengths are multiples of this: the sublane tile of a TPU's bfloat16 registers is 16, of
# float32 8; and no device likes odd shapes.
_LENGTH_STEP = 8
# Characters of a value in JSON lines, measured on MiniLM's last layers: a blank, a sign or none,
# one digit, a point, six decimals, a comma.
_JSON_CHARACTERS = 10.5


@dataclass
class BucketPlan:
    """The batches of one length.

    Attributes:
      length: of their rows.
      rows: rows that fall into it.
      batches: batches they make, the filled up ones included.
      tokens: real tokens of its rows.
    """

    length: int
    rows: int = 0
    batches: int = 0
    tokens: int = 0

    def computed_tokens(self, batch_size: int) -> int:
        """Tokens that the device computes for it."""
        return self.batches * batch_size * self.length

    def pad_waste(self, batch_size: int) -> float:
        """The share of computed tokens that are padding or filler."""
        computed = self.computed_tokens(batch_size)
        return 1.0 - self.tokens / computed if computed else 0.0


@dataclass
class Plan:
    """What a run would do.

    Attributes:
      batch_size: rows of a batch.
      max_seq_length: of the longest row.
      outputs: what would come out.
      examples: of the input.
      truncated_examples: examples that would lose pieces.
      tokens_lost: pieces they would lose.
      windowed_examples: examples that would be computed in several windows.
      words: words whose vectors would come out, if any are wanted.
      words_without_vector: those of them whose vector would be zero.
      output_tokens: tokens in the output, [CLS] and [SEP] included; those of windows once.
      example_lengths: how many examples have 0, 1, 2, … tokens, [CLS] and [SEP] included, before
        anything is cut.
      row_lengths: how many rows have 0, 1, 2, … tokens.
      sorting_windows: parts of the input that are sorted by length on their own.
      buckets: what falls into each bucket.
    """

    batch_size: int
    max_seq_length: int
    outputs: tuple[OutputSpec, ...]
    examples: int = 0
    truncated_examples: int = 0
    tokens_lost: int = 0
    windowed_examples: int = 0
    words: int = 0
    words_without_vector: int = 0
    output_tokens: int = 0
    example_lengths: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    row_lengths: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    sorting_windows: int = 0
    buckets: list[BucketPlan] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Real tokens that the device computes, those of every window."""
        return sum(bucket.tokens for bucket in self.buckets)

    @property
    def computed_tokens(self) -> int:
        """Tokens that the device computes, padding and filler rows included."""
        return sum(bucket.computed_tokens(self.batch_size) for bucket in self.buckets)

    @property
    def pad_waste(self) -> float:
        """The share of computed tokens that are padding or filler."""
        return 1.0 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    def output_bytes(self, format: str) -> int:
        """The bytes of the features in an output file; tokens and ids come on top of them."""
        vectors = {"token": self.output_tokens, "word": self.words, "sequence": self.examples}
        return int(
            sum(
                vectors[output.level]
                * output.width
                * (_JSON_CHARACTERS if format == "jsonl" else ITEM_SIZES[output.dtype])
                for output in self.outputs
            )
        )

    def suggest_buckets(self) -> tuple[int, ...]:
        """The lengths that would leave the least to compute, filler rows counted."""
        return suggest_buckets(
            self.row_lengths,
            max_seq_length=self.max_seq_length,
            # On average half of the last batch of each bucket of a sorting window is filler.
            filler_rows=self.sorting_windows * self.batch_size / 2,
        )


def plan(
    config: ExtractConfig,
    input_path: str | Path,
    *,
    progress: Callable[[int], None] | None = None,
) -> Plan:
    """Finds out what `extract` would do with an input, without a step of the model.

    Args:
      config: the settings of the run.
      input_path: the file to read, or `-` for standard input.
      progress: called now and then with the number of examples read so far.

    Raises:
      BertFeaturesError: what was wrong, in one sentence.
    """
    preparation = Preparation(config)
    examples = read_examples(
        input_path, config.input_settings(), encoding_errors=config.encoding_errors
    )
    pending: dict[int, Pending] = {}
    input_fn = preparation.input_fn(lambda: examples, pending)
    result = Plan(config.batch_size, config.max_seq_length, preparation.outputs)
    result.buckets = [BucketPlan(length) for length in preparation.buckets]
    held: list[np.ndarray] = []
    for chunk in _chunks(input_fn):
        _add_examples(result, chunk)
        _add_words(result, chunk, pending)
        held.append(chunk["lengths"])
        if sum(int(lengths.sum()) for lengths in held) >= preparation.window_tokens:
            _add_rows(result, np.concatenate(held))
            held = []
        if progress:
            progress(result.examples)
    if held:
        _add_rows(result, np.concatenate(held))
    return result


def _chunks(input_fn: TextInputFn) -> Iterator[dict[str, np.ndarray]]:
    try:
        yield from input_fn.rows().as_numpy_iterator()
    except tf.errors.OpError:
        if isinstance(input_fn.error, BertFeaturesError):
            raise input_fn.error from None
        raise


def _add_examples(result: Plan, chunk: dict[str, np.ndarray]) -> None:
    positions = chunk["unique_ids"] - chunk["unique_ids"].min(initial=0)
    first = np.flatnonzero(np.diff(positions, prepend=-1))
    own = chunk["lengths"]
    if "num_windows" in chunk:
        own = chunk["own_ends"] - chunk["own_starts"]
        result.windowed_examples += int(np.count_nonzero(chunk["num_windows"][first] > 1))
    kept = np.add.reduceat(own, first) if len(first) else own
    lost = chunk["tokens_lost"][first]
    result.examples += len(first)
    result.output_tokens += int(kept.sum())
    result.tokens_lost += int(lost.sum())
    result.truncated_examples += int(np.count_nonzero(lost))
    result.example_lengths = _add_counts(result.example_lengths, kept + lost)


def _add_words(result: Plan, chunk: dict[str, np.ndarray], pending: dict[int, Pending]) -> None:
    for position in np.unique(chunk["unique_ids"]).tolist():
        table = pending.pop(position).words
        if table is not None:
            result.words += len(table.num_pieces)
            result.words_without_vector += int(np.count_nonzero(table.num_pieces == 0))


def _add_rows(result: Plan, lengths: np.ndarray) -> None:
    """Adds the rows of one sorting window."""
    result.sorting_windows += 1
    result.row_lengths = _add_counts(result.row_lengths, lengths)
    bucket_of_row = np.searchsorted([bucket.length for bucket in result.buckets], lengths)
    rows = np.bincount(bucket_of_row, minlength=len(result.buckets)).tolist()
    tokens = np.bincount(bucket_of_row, lengths, minlength=len(result.buckets)).tolist()
    for bucket, of_bucket, of_tokens in zip(result.buckets, rows, tokens, strict=True):
        bucket.rows += of_bucket
        bucket.tokens += int(of_tokens)
        bucket.batches += -(-of_bucket // result.batch_size)


def _add_counts(counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    more = np.bincount(lengths, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def suggest_buckets(
    row_lengths: Sequence[int] | np.ndarray, *, max_seq_length: int, filler_rows: float
) -> tuple[int, ...]:
    """The set of buckets for which the fewest tokens are computed.

    By dynamic programming over all sets of multiples of 8 and `max_seq_length`.

    Args:
      row_lengths: how many rows have 0, 1, 2, … tokens.
      max_seq_length: the longest bucket, which every set has if a row needs it.
      filler_rows: rows that each bucket costs besides its own.

    Returns:
      Ascending lengths; `max_seq_length` alone if there are no rows.
    """
    lengths = [*range(_LENGTH_STEP, max_seq_length, _LENGTH_STEP), max_seq_length]
    rows_up_to = np.cumsum(np.append(row_lengths, np.zeros(max_seq_length + 1, np.int64)))
    counts = [0, *(int(rows_up_to[length]) for length in lengths)]
    # best[j]: the fewest tokens for all rows up to lengths[j - 1], and the buckets they are in.
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for j, length in enumerate(lengths, start=1):
        if counts[j] == counts[j - 1]:  # nothing new: no bucket has to end here
            best.append(best[-1])
            continue
        best.append(
            min(
                (best[i][0] + (counts[j] - counts[i] + filler_rows) * length, (*best[i][1], length))
                for i in range(j)
            )
        )
    return best[-1][1] or (max_seq_length,)
