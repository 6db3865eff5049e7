"""plan(): what a run would do. It tokenises the input and computes nothing.

Importing this imports no framework: `plan` does, after the checks that need none.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bert_features.batches.bucketing import (
    PACKED_POOL_BATCHES,
    BatchShapes,
    device_shapes,
    plan_batches,
)
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import ITEM_SIZES, OutputSpec
from bert_features.config.levels import LEVELS
from bert_features.config.packing import SCORED
from bert_features.corpus.inputs import Inputs, find_inputs
from bert_features.extraction.checks import check_input_and_checkpoint, may_pack
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import check_cache
from bert_features.extraction.losses import find_cures
from bert_features.formats.records import FeatureBatch
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.readers import registry
from bert_features.readers.examples import source_of_input

# Suggested lengths are multiples of this: the sublane tile of a TPU's bfloat16 registers is 16, of
# float32 8; and no device likes odd shapes.
_LENGTH_STEP = 8
# Characters of a value in JSON lines, measured on MiniLM's last layers: a blank, a sign or none,
# one digit, a point, six decimals, a comma.
_JSON_CHARACTERS = dict.fromkeys(ITEM_SIZES, 10.5) | {"int8": 4.5, "binary": 4.6}
# The counts of a plan that its JSON form has under their own names.
_COUNTS = (
    *("examples", "output_tokens", "truncated_examples", "tokens_lost", "tokens_unknown"),
    *("windowed_examples", "words", "words_without_vector", "tokens", "computed_tokens"),
)


@dataclass
class BucketPlan:
    """The batches of one length, or where batches are packed, of one shape.

    Attributes:
      length: tokens of a row, padding included.
      batch_rows: number of rows of a full batch, or of a packed one.
      rows: number of rows, before packing.
      batches: number of batches.
      tokens: real tokens of the rows.
      computed_tokens: tokens that the device computes for them.
      filler_tokens: computed tokens in rows that only fill up a batch.
    """

    length: int
    batch_rows: int
    rows: int = 0
    batches: int = 0
    tokens: int = 0
    computed_tokens: int = 0
    filler_tokens: int = 0


@dataclass(repr=False, kw_only=True)
class Plan(Counts):
    """What a run would do: its totals, as far as they depend on the texts alone, and more.

    Attributes:
      shapes: the shapes that batches may have.
      outputs: the outputs.
      max_seq_length: maximum tokens of a row before packing.
      windowed_examples: examples that would be computed in several windows.
      cures: settings that would keep what truncation cuts off, with their values as in Python.
      output_tokens: tokens in the output, [CLS] and [SEP] included, each once.
      output_vectors: tokens that have a vector for late interaction.
      output_pairs: pairs of tokens, and of words, for attention: the sums of the squares.
      example_lengths: number of examples that have 0, 1, 2, … tokens, [CLS] and [SEP] included,
        before truncation.
      row_lengths: number of rows that have 0, 1, 2, … tokens.
      buckets: the rows and batches of each bucket; of packed batches, of each shape.
      unpacked_tokens: tokens that a TPU or GPU would compute without packing.
      packed_tokens: the same with packing, if the outputs allow it.
    """

    shapes: BatchShapes
    outputs: tuple[OutputSpec, ...]
    max_seq_length: int
    windowed_examples: int = 0
    cures: dict[str, str] = field(default_factory=dict)
    output_tokens: int = 0
    output_vectors: int = 0
    output_pairs: dict[str, int] = field(default_factory=dict)
    example_lengths: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    row_lengths: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    buckets: list[BucketPlan] = field(default_factory=list)
    unpacked_tokens: int = 0
    packed_tokens: int = 0

    def __repr__(self) -> str:
        outputs = ", ".join(output.describe() for output in self.outputs)
        used = dict.fromkeys(str(b.length) for b in self.buckets if b.batches)
        lengths = ", ".join(used) or "none"
        return (
            f"<Plan: {self.examples:,} examples, {self.tokens:,} tokens "
            f"({self.pad_waste:.1%} padding), {self.tokens_lost:,} tokens lost, "
            f"batches of lengths {lengths}; {outputs}>"
        )

    @property
    def words_without_vector(self) -> int:
        """Words whose vector would be zero."""
        return self.words_vanished + self.words_lost

    @property
    def filler_share(self) -> float:
        """The share of computed tokens in rows that only fill up a batch."""
        filler = sum(bucket.filler_tokens for bucket in self.buckets)
        return filler / self.computed_tokens if self.computed_tokens else 0.0

    @property
    def unpacked_pad_waste(self) -> float:
        """The share of `unpacked_tokens` that would be padding or filler."""
        return 1.0 - self.tokens / self.unpacked_tokens if self.unpacked_tokens else 0.0

    @property
    def packed_pad_waste(self) -> float:
        """The share of `packed_tokens` that would be padding or filler."""
        return 1.0 - self.tokens / self.packed_tokens if self.packed_tokens else 0.0

    def output_bytes(self, format: str, name: str | None = None) -> int:
        """Size of the features, or of one, in an output file, in bytes, without tokens and ids."""
        vectors = {"token": self.output_tokens, "word": self.words, "sequence": self.examples}
        vectors |= {"span": self.spans, "vector": self.output_vectors, **self.output_pairs}
        sizes = _JSON_CHARACTERS if format == "jsonl" else ITEM_SIZES
        total = 0.0
        for output in (each for each in self.outputs if name in (None, each.name)):
            terms = self.examples * output.max_units
            terms = min(terms, self.output_tokens) if output.weighs_tokens else terms
            units = vectors.get(output.level, terms)
            # The ids of units of an output's own belong to it.
            ids = LEVELS[output.level].pieces if output.max_units else ()
            total += units * (output.stored_width * sizes[output.dtype] + len(ids) * sizes["int32"])
        return int(total)

    def suggest_buckets(self, max_buckets: int = 8) -> tuple[int, ...]:
        """The lengths, few enough to compile each, with the least padding."""
        return suggest_buckets(
            self.row_lengths, max_seq_length=self.max_seq_length, max_buckets=max_buckets
        )

    def as_dict(self, format: str) -> dict[str, Any]:
        """The plan as JSON values, its size in a format; docs/command_line.md lists the keys."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "pad_waste": self.pad_waste,
            "filler_share": self.filler_share,
            "unpacked_pad_waste": self.unpacked_pad_waste,
            "packed_pad_waste": self.packed_pad_waste,
            "format": format,
            "output_bytes": self.output_bytes(format),
            "outputs": [
                {"name": o.name, "level": o.level, "width": o.width, "dtype": o.dtype}
                | {"bytes": self.output_bytes(format, o.name)}
                for o in self.outputs
            ],
            "example_lengths": _occurring(self.example_lengths),
            "row_lengths": _occurring(self.row_lengths),
            "buckets": [asdict(bucket) for bucket in self.buckets],
            "suggested_buckets": list(self.suggest_buckets()),
        }


def _occurring(counts: np.ndarray) -> list[list[int]]:
    """[length, count] of each length that occurs."""
    return [[int(length), int(counts[length])] for length in np.flatnonzero(counts)]


def plan(
    config: ExtractConfig, input_path: Inputs, *, progress: Callable[[int], None] | None = None
) -> Plan:
    """Finds out what `extract` would do with its inputs, without a step of the model.

    Args:
      config: the settings of the run.
      input_path: the file to read, or `-` for standard input; or several, globs and folders.
      progress: called from time to time with the number of examples read so far.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    inputs = find_inputs(input_path)
    checkpoint = check_input_and_checkpoint(config, *inputs)
    check_cache(config)  # last, as it makes a folder
    import_tensorflow(config.runtime, config.device)
    from bert_features.extraction.assembly import MegabatchResults
    from bert_features.extraction.preparation import Preparation
    from bert_features.extraction.scales import scales_of_files

    preparation = Preparation(config, checkpoint=checkpoint)
    scales_of_files(preparation.outputs, preparation)  # refuses what the run would refuse
    sources = (source_of_input(config, path) for path in inputs)
    examples = itertools.chain.from_iterable(map(registry.read, sources))
    input_fn = preparation.input_fn(lambda: preparation.shard.take(examples))
    result = Plan(
        shapes=preparation.shapes,
        outputs=preparation.outputs,
        cures=find_cures(preparation.given, preparation.checkpoint),
        max_seq_length=preparation.max_seq_length,
        buckets=sorted(
            (BucketPlan(length, rows) for rows, length in preparation.shapes.declared),
            key=lambda bucket: bucket.length,
        ),
    )
    unknown_id = preparation.tokenizer.frame.unknown_id
    shapes_on_device = functools.partial(
        device_shapes,
        preparation.config,
        preparation.max_seq_length,
        most_tokens=preparation.attention_tokens,
    )
    shapes = shapes_on_device(packed=False), shapes_on_device(packed=may_pack(config))
    most = max(
        rows * length for s in shapes for rows, length in zip(s.rows, s.buckets, strict=True)
    )
    held: list[np.ndarray] = []
    for megabatch in input_fn.megabatches():
        results = MegabatchResults(megabatch, (), preparation.in_windows)
        _add_examples(result, results.batch(unknown_id))
        if (scored := megabatch.columns.get(SCORED)) is not None:
            result.output_vectors += int(scored[results.own_tokens()].sum())
        _add_rows(result, megabatch.columns["lengths"])
        held.append(megabatch.columns["lengths"])
        if sum(int(lengths.sum()) for lengths in held) >= PACKED_POOL_BATCHES * most:
            _add_elsewhere(result, held, shapes)
        if progress:
            progress(result.examples)
    _add_elsewhere(result, held, shapes)
    return result


def _add_elsewhere(
    result: Plan, held: list[np.ndarray], shapes: tuple[BatchShapes, BatchShapes]
) -> None:
    """Adds the rows of megabatches, by their lengths, as one megabatch of a TPU or GPU."""
    if held:
        lengths = np.concatenate(held)
        held.clear()
        unpacked, packed = (plan_batches(lengths, each).computed_tokens for each in shapes)
        result.unpacked_tokens += unpacked
        result.packed_tokens += packed


def _add_examples(result: Plan, batch: FeatureBatch) -> None:
    """Adds examples without features."""
    counts, lengths = batch.counts, np.diff(batch.levels["token"].splits)
    result.add_rows(counts)
    result.add_examples(counts)
    result.windowed_examples += int(np.count_nonzero(counts["windows"] > 1))
    result.output_tokens += int(lengths.sum())
    words = counts["words"] - counts["words_vanished"] - counts["words_lost"]
    numbers = {"token": lengths, "word": words}
    for level in {output.level for output in result.outputs if output.is_paired}:
        squares = LEVELS[level].count(numbers[LEVELS[level].unit].astype(np.int64))
        result.output_pairs[level] = result.output_pairs.get(level, 0) + int(squares.sum())
    result.example_lengths = _add_counts(result.example_lengths, lengths + counts["tokens_lost"])


def _add_rows(result: Plan, lengths: np.ndarray) -> None:
    """Adds the rows of one megabatch."""
    result.row_lengths = _add_counts(result.row_lengths, lengths)
    batches = plan_batches(lengths, result.shapes)
    tokens = np.add.reduceat(lengths[batches.order], batches.starts)
    result.computed_tokens += batches.computed_tokens
    shapes = {(bucket.length, bucket.batch_rows): bucket for bucket in result.buckets}
    numbers = np.searchsorted(result.shapes.buckets, batches.lengths)
    columns = (numbers, batches.lengths, batches.counts, batches.filled, batches.rows, tokens)
    for i, length, count, filled, rows, real in zip(*(c.tolist() for c in columns), strict=True):
        full = (result.shapes.buckets[i], result.shapes.rows[i])
        bucket = shapes[(length, rows) if result.shapes.packed else full]
        bucket.batches += 1
        bucket.rows += count
        bucket.tokens += real
        bucket.computed_tokens += rows * length
        bucket.filler_tokens += (rows - filled) * length


def _add_counts(counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    more = np.bincount(lengths, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def suggest_buckets(
    row_lengths: Sequence[int] | np.ndarray, *, max_seq_length: int, max_buckets: int
) -> tuple[int, ...]:
    """The set of buckets with the least padding; `max_seq_length` alone if there are no rows.

    By dynamic programming over all sets of multiples of 8 and `max_seq_length`. `row_lengths` are
    the numbers of rows that have 0, 1, 2, … tokens.
    """
    rows_up_to = np.cumsum(np.append(row_lengths, np.zeros(max_seq_length + 1, np.int64)))
    multiples = [*range(_LENGTH_STEP, max_seq_length, _LENGTH_STEP), max_seq_length]
    counts, lengths = [0], [0]
    for length in multiples:
        if rows_up_to[length] > counts[-1]:  # otherwise no row has that length
            counts.append(int(rows_up_to[length]))
            lengths.append(length)
    # best[j]: the fewest tokens for all rows up to lengths[j], and the buckets they are in.
    nothing: tuple[float, tuple[int, ...]] = (np.inf, ())
    best = [(0.0, nothing[1]), *[nothing] * (len(counts) - 1)]
    for _ in range(max_buckets):
        best = [
            best[0],
            *(
                min(
                    (best[i][0] + (counts[j] - counts[i]) * lengths[j], (*best[i][1], lengths[j]))
                    for i in range(j)
                )
                for j in range(1, len(counts))
            ),
        ]
    return best[-1][1] or (max_seq_length,)
