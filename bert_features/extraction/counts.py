"""Counts: what a run did with its examples, tokens and words."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bert_features.batches.bucketing import FILLER_ID


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
    """

    unique_id: int | str
    tokens_kept: int
    tokens_lost: int
    windows: int = 1
    words: int = 0
    words_vanished: int = 0
    words_lost: int = 0


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

    @property
    def pad_waste(self) -> float:
        """The share of computed tokens that were padding or filler."""
        return 1.0 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    def add_batch(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds the rows of a batch of `TextInputFn`."""
        real = batch["unique_ids"] != FILLER_ID
        first = real & (batch["window"] == 0) if "window" in batch else real
        self.rows += int(np.count_nonzero(real))
        self.examples += int(np.count_nonzero(first))
        self.tokens += int(batch["input_mask"].sum())
        self.computed_tokens += batch["input_mask"].size
        self.tokens_lost += int(batch["tokens_lost"].sum())
        self.truncated_examples += int(np.count_nonzero(batch["tokens_lost"]))

    def add_words(self, example: ExampleCounts) -> None:
        """Adds the words of an example."""
        self.words += example.words
        self.words_vanished += example.words_vanished
        self.words_lost += example.words_lost
