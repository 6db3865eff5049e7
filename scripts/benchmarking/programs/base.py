"""What a program of the benchmark is to the worker that runs it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarking.corpora import Corpus

Settings = dict[str, Any]
Arrays = dict[str, np.ndarray]


@dataclass
class Done:
    """What came of a run.

    Attributes:
      vectors: float32 [N, H], in the order of the texts.
      tokens: real tokens, special ones included.
      computed_tokens: the same with padding.
      traces: how often the program was traced or compiled so far, where it counts that.
    """

    vectors: np.ndarray
    tokens: int
    computed_tokens: int
    traces: int | None = None


class Job(Protocol):
    """Texts in, the mean over the tokens of the last layer out; tokenizing included.

    `finish` is called after the time is taken.
    """

    def run(self, corpus: Corpus) -> Any:
        """What is timed."""

    def finish(self, result: Any) -> Done:
        """What was done, from what `run` returned."""


class Encoder(Protocol):
    """Batches of ids in, the last layer out as float32 [B, S, H] in NumPy."""

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """What is timed."""


def threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


class SortedBatches:
    """The loop that the runtimes without one of their own are best served by.

    All texts are tokenized by `tokenizers` in parallel, sorted by their tokens, longest first, and
    padded to the longest of their batch.

    Args:
      folder: holds `tokenizer.json`.
      max_length: of rows.
    """

    def __init__(self, folder: Path, max_length: int) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(max_length)
        self._tokenizer.no_padding()
        self.tokens = 0
        self.computed_tokens = 0

    def __call__(
        self, texts: Sequence[str], batch_size: int, *, length: int | None = None
    ) -> Iterator[tuple[np.ndarray, Arrays]]:
        """Yields (places of the rows among the texts, model inputs int64 [B, S]).

        Args:
          texts: what to tokenize.
          batch_size: rows of a batch.
          length: what to pad to, in the texts' own order; by default sorted and dynamic.
        """
        self.tokens = self.computed_tokens = 0
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]
        lengths = np.array([len(row) for row in ids])
        order = np.arange(len(ids)) if length else np.argsort(-lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = _padded([ids[row] for row in rows], length or int(lengths[rows].max()))
            self.tokens += int(lengths[rows].sum())
            self.computed_tokens += inputs["input_ids"].size
            yield rows, inputs


def _padded(ids: list[list[int]], length: int) -> Arrays:
    padded = np.zeros((len(ids), length), np.int64)
    mask = np.zeros((len(ids), length), np.int64)
    for i, row in enumerate(ids):
        padded[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return {
        "input_ids": padded,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(padded),
    }
