"""Counts: what a run did with its examples, tokens and words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from bert_features.batches.bucketing import FILLER_ID

# The exponent's bits of the types of two bytes: all are set in NaN and infinity alone.
_EXPONENTS = {"float16": np.uint16(0x7C00), "bfloat16": np.uint16(0x7F80)}
_BLOCK = 1 << 17


@dataclass(frozen=True)
class ExampleCounts:
    """What happened to one example.

    Attributes:
      unique_id: its id.
      tokens_kept: pieces that stand in a row, without [CLS] and [SEP].
      tokens_lost: pieces that truncation cut off.
      windows: number of rows it was computed in.
      words: number of its words; 0 unless an output has words.
      words_vanished: words that cleaning left empty; their vectors are zero.
      words_lost: words that truncation cut off whole; their vectors are zero.
      tokens_unknown: those of `tokens_kept` that are [UNK].
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


_NONE = np.zeros(1, np.int64)


@dataclass(frozen=True)
class CountsByExample:
    """The counts of several examples, one array for each field of `ExampleCounts`.

    Attributes:
      unique_ids: N ids.
      tokens_kept: int64 [N]; this and the others as in `ExampleCounts`.
      tokens_lost: int32 [N].
      windows: int64 [N].
      tokens_unknown: int64 [N].
      non_finite: bool [N].
      tokens: int64 [N], real tokens of its rows, [CLS] and [SEP] included.
      words: int64 [N]; this and the last two are [1] unless an output has words.
      words_vanished: int64 [N].
      words_lost: int64 [N].
    """

    unique_ids: Sequence[int | str]
    tokens_kept: np.ndarray
    tokens_lost: np.ndarray
    windows: np.ndarray
    tokens_unknown: np.ndarray
    non_finite: np.ndarray
    tokens: np.ndarray
    words: np.ndarray = field(default_factory=lambda: _NONE)
    words_vanished: np.ndarray = field(default_factory=lambda: _NONE)
    words_lost: np.ndarray = field(default_factory=lambda: _NONE)

    def __iter__(self) -> Iterator[ExampleCounts]:
        names = [f.name for f in fields(ExampleCounts) if f.name != "unique_id"]
        count = len(self.unique_ids)
        columns = [np.broadcast_to(getattr(self, name), count).tolist() for name in names]
        for unique_id, *values in zip(self.unique_ids, *columns, strict=True):
            yield ExampleCounts(unique_id, **dict(zip(names, values, strict=True)))

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by name, [N] each."""
        names = [f.name for f in fields(self) if f.name != "unique_ids"]
        return {name: np.broadcast_to(getattr(self, name), len(self.unique_ids)) for name in names}

    def take(self, places: np.ndarray, unique_ids: Sequence[int | str]) -> Self:
        """The counts at some places, int64 [M], for examples of these ids."""
        taken = {name: column[places] for name, column in self.columns().items()}
        return type(self)(unique_ids, **taken)

    @classmethod
    def join(cls, parts: "Sequence[CountsByExample]") -> Self:
        """The examples of several parts."""
        columns = [part.columns() for part in parts]
        joined = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
        return cls([unique_id for part in parts for unique_id in part.unique_ids], **joined)


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
      tokens_kept: pieces that stand in a row, each once, without [CLS] and [SEP]; of finished
        examples, like all that follow.
      tokens_unknown: those of `tokens_kept` that are [UNK].
      non_finite_examples: examples with a NaN or an infinity among the values of their features.
      examples_reused: examples whose features were known already, as their text had come before.
      examples_from_cache: those of `examples_reused` that an earlier run had computed, or another.
      tokens_reused: those of `tokens` that are of reused examples.
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

    def add_batch(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds the rows of a batch of `TextInputFn`; one without columns has none."""
        if not batch:
            return
        real = batch["unique_ids"] != FILLER_ID
        first = real & (batch["window"] == 0) if "window" in batch else real
        self.rows += int(np.count_nonzero(real))
        self.examples += int(np.count_nonzero(first))
        self.tokens += int(batch["input_mask"].sum())
        self.computed_tokens += batch["input_mask"].size
        self.tokens_lost += int(batch["tokens_lost"].sum())
        self.truncated_examples += int(np.count_nonzero(batch["tokens_lost"]))

    def add_reused(self, examples: "CountsByExample", *, from_cache: int) -> None:
        """Adds what `add_batch` would have counted for examples that were not computed.

        Args:
          examples: the examples.
          from_cache: how many of them another run had computed.
        """
        tokens = int(examples.tokens.sum())
        self.examples += len(examples.unique_ids)
        self.rows += int(examples.windows.sum())
        self.tokens += tokens
        self.tokens_lost += int(examples.tokens_lost.sum())
        self.truncated_examples += int(np.count_nonzero(examples.tokens_lost))
        self.examples_reused += len(examples.unique_ids)
        self.examples_from_cache += from_cache
        self.tokens_reused += tokens

    def add_examples(self, examples: "CountsByExample") -> None:
        """Adds what is counted when examples are finished."""
        self.tokens_kept += int(examples.tokens_kept.sum())
        self.tokens_unknown += int(examples.tokens_unknown.sum())
        self.non_finite_examples += int(examples.non_finite.sum())
        self.words += int(examples.words.sum())
        self.words_vanished += int(examples.words_vanished.sum())
        self.words_lost += int(examples.words_lost.sum())


def find_non_finite(values: np.ndarray) -> np.ndarray | None:
    """Bool [R]: the vectors [R, D] that have a NaN or an infinity; None if none has one."""
    return ~np.isfinite(values).all(axis=1) if _may_have_non_finite(values) else None


def _may_have_non_finite(values: np.ndarray) -> bool:
    """A check of one pass, which nearly always settles it: false if every value is finite."""
    if values.dtype.itemsize == 2:  # arithmetic of 16 bits is slow; the exponent's bits are not
        exponent = _EXPONENTS[values.dtype.name]
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint16)
        block = np.empty(_BLOCK, np.uint16)  # stays in the cache
        return any(
            np.bitwise_and(part, exponent, out=block[: len(part)]).max() == exponent
            for part in (flat[start : start + _BLOCK] for start in range(0, len(flat), _BLOCK))
        )
    with np.errstate(all="ignore"):  # a sum of finite values may overflow too
        return not np.isfinite(values.sum())
