"""Counts: what a run did with its examples, tokens and words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Self

import numpy as np

from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import count_clipped

if TYPE_CHECKING:
    from bert_features.batches.input_fn import Batch

# The exponent's bits of the types of two bytes: all are set in NaN and infinity alone.
_EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}
_BLOCK = 1 << 17


@dataclass(frozen=True)
class ExampleCounts:
    """What happened to one example.

    Attributes:
      tokens_kept: pieces that stand in a row, without [CLS] and [SEP].
      tokens_lost: pieces that truncation cut off.
      windows: number of rows it was computed in.
      words: number of its words; 0 unless an output has words.
      words_vanished: words that cleaning left empty; their vectors are zero.
      words_lost: words that truncation cut off whole; their vectors are zero.
      tokens_unknown: the part of `tokens_kept` that is [UNK].
      spans, spans_blank, spans_cut, spans_lost: number of its spans; and of these the ones of
        blanks alone, cut short by truncation, and cut off whole. Blank and lost ones have zeros.
      non_finite: whether a value of its features is NaN or infinite.
    """

    unique_id: int | str
    tokens_kept: int
    tokens_lost: int
    windows: int = 1
    words: int = 0
    words_vanished: int = 0
    words_lost: int = 0
    tokens_unknown: int = 0
    non_finite: bool = False
    spans: int = 0
    spans_blank: int = 0
    spans_cut: int = 0
    spans_lost: int = 0


# The counts of a batch, `FeatureBatch.counts`: the numbers of `ExampleCounts`, and the real tokens
# of the rows of each example, [CLS] and [SEP] included.
CUT = "terms_cut"  # where an output has a most of units, those of each example beyond it
COUNTS = (*(field.name for field in fields(ExampleCounts) if field.name != "unique_id"), "tokens")


# Level -> names of the counts of its units, and what `UnitTable.counts` calls them.
UNIT_COUNTS = {
    "word": {"words": "all", "words_vanished": "blank", "words_lost": "lost"},
    "span": {"spans": "all", "spans_blank": "blank", "spans_cut": "cut", "spans_lost": "lost"},
}
SPAN_COUNTS = UNIT_COUNTS["span"].keys()  # which older caches do not have


def counts_by_example(batch: FeatureBatch) -> Iterator[ExampleCounts]:
    """The counts of each example of a batch."""
    columns = [batch.counts[name].tolist() for name in COUNTS[:-1]]
    for values in zip(batch.unique_ids.tolist(), *columns, strict=True):
        yield ExampleCounts(*values)


@dataclass
class Counts:
    """Totals of a run so far.

    Attributes:
      examples: examples computed; one of several windows counts with its first.
      tokens: their real tokens, [CLS] and [SEP] included, in every window.
      computed_tokens: tokens computed for them, padding and filler rows included.
      truncated_examples: examples that lost pieces.
      tokens_lost: the pieces they lost.
      rows: rows computed for them; more than examples where long texts are windowed.
      words: their words, if an output has words.
      words_vanished: words that cleaning left empty; their vectors are zero.
      words_lost: words that truncation cut off whole; their vectors are zero.
      spans, spans_blank, spans_cut, spans_lost: their spans, see `ExampleCounts`.
      tokens_kept: pieces that stand in a row, each once, without [CLS] and [SEP]; of finished
        examples, like all that follow.
      tokens_unknown: the part of `tokens_kept` that is [UNK].
      non_finite_examples: examples with a NaN or an infinity among the values of their features.
      examples_reused: examples whose features were known already, as their text had come before.
      examples_from_cache: the part of `examples_reused` that another run had computed.
      tokens_reused: the part of `tokens` in reused examples.
      values_int8: values of finished examples that became int8.
      values_clipped: the part of `values_int8` more than half a step outside the scale.
      empty_examples: finished examples without any piece: of an empty text, or of one that cleaning
        left empty.
      terms_cut: terms of finished examples beyond the `top_k` heaviest; where texts are computed in
        windows, at least so many.
    """

    examples: int = 0
    tokens: int = 0
    computed_tokens: int = 0
    truncated_examples: int = 0
    tokens_lost: int = 0
    rows: int = 0
    words: int = 0
    words_vanished: int = 0
    words_lost: int = 0
    tokens_kept: int = 0
    tokens_unknown: int = 0
    non_finite_examples: int = 0
    examples_reused: int = 0
    examples_from_cache: int = 0
    tokens_reused: int = 0
    empty_examples: int = 0
    values_int8: int = 0
    values_clipped: int = 0
    spans: int = 0
    spans_blank: int = 0
    spans_cut: int = 0
    spans_lost: int = 0
    terms_cut: int = 0

    @property
    def unknown_share(self) -> float:
        """The share of the kept pieces that are [UNK]."""
        return self.tokens_unknown / self.tokens_kept if self.tokens_kept else 0.0

    @property
    def pad_waste(self) -> float:
        """The share of computed tokens that were padding or filler."""
        real = self.tokens - self.tokens_reused
        return 1.0 - real / self.computed_tokens if self.computed_tokens else 0.0

    @classmethod
    def sum(cls, counts: "Iterable[Counts]") -> Self:
        """The totals of several runs."""
        counts = list(counts)
        return cls(*(sum(getattr(each, f.name) for each in counts) for f in fields(cls)))

    def add_batch(self, batch: "Batch") -> None:
        """Adds the rows of a batch; one without columns has none."""
        if not batch.columns:
            return
        rows, columns = batch.members.rows, batch.megabatch.columns
        lost = columns["tokens_lost"][rows]
        later = np.count_nonzero(columns["window"][rows]) if "window" in columns else 0
        self.rows += len(rows)
        self.examples += len(rows) - int(later)
        self.tokens += int(batch.members.lengths.sum())
        self.computed_tokens += batch.columns["input_mask"].size
        self.tokens_lost += int(lost.sum())
        self.truncated_examples += int(np.count_nonzero(lost))

    def add_rows(self, counts: Mapping[str, np.ndarray]) -> None:
        """Adds what `add_batch` counts, for examples that are not computed; see `COUNTS`."""
        self.examples += len(counts["tokens"])
        self.rows += int(counts["windows"].sum())
        self.tokens += int(counts["tokens"].sum())
        self.tokens_lost += int(counts["tokens_lost"].sum())
        self.truncated_examples += int(np.count_nonzero(counts["tokens_lost"]))

    def add_reused(self, counts: Mapping[str, np.ndarray], *, from_cache: int) -> None:
        """Adds examples whose features were known already, some of them from another run.

        The counts are by the names of `COUNTS`.
        """
        self.add_rows(counts)
        self.examples_reused += len(counts["tokens"])
        self.examples_from_cache += from_cache
        self.tokens_reused += int(counts["tokens"].sum())

    def add_examples(self, counts: Mapping[str, np.ndarray]) -> None:
        """Adds what is counted when examples are finished, by the names of `COUNTS`."""
        self.non_finite_examples += int(counts["non_finite"].sum())
        pieces = counts["tokens_kept"] + counts["tokens_lost"]
        self.empty_examples += len(pieces) - int(np.count_nonzero(pieces))
        for name in ("tokens_kept", "tokens_unknown", *chain(*UNIT_COUNTS.values())):
            setattr(self, name, getattr(self, name) + int(counts[name].sum()))
        if CUT in counts:
            self.terms_cut += int(counts[CUT].sum())

    def add_clipped(self, batch: FeatureBatch, features: Sequence[Feature]) -> None:
        """Adds the values that will be int8; the clipped ones also to the batch's `counts`."""
        clipped, values = count_clipped(batch, features)
        batch.counts["clipped"] = clipped
        self.values_int8 += values
        self.values_clipped += int(clipped.sum())


def find_non_finite(values: np.ndarray) -> np.ndarray | None:
    """Bool [R]: the vectors [R, D] that have a NaN or an infinity; None if none has one."""
    return ~np.isfinite(values).all(axis=1) if _may_have_non_finite(values) else None


def _may_have_non_finite(values: np.ndarray) -> bool:
    """A check of one pass, which nearly always settles it: false if every value is finite."""
    if values.dtype.itemsize == 2:  # arithmetic of 16 bits is slow; comparing integers is not
        exponent = _EXPONENTS[values.dtype.name]
        flat = np.ascontiguousarray(values).reshape(-1)
        return any(
            # What is not finite has the largest bits of each sign. A block stays in the cache.
            part.view(np.int16).max() >= exponent or part.view(np.uint16).max() >= 0x8000 + exponent
            for part in (flat[start : start + _BLOCK] for start in range(0, len(flat), _BLOCK))
        )
    with np.errstate(all="ignore"):  # a sum of finite values may overflow too
        return not np.isfinite(values.sum())
