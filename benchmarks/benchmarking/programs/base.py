"""The interface of a program of the benchmark, and code that several programs share."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarking.corpora import Corpus

Settings = dict[str, Any]
Arrays = dict[str, np.ndarray]


@dataclass
class Done:
    """The result of a run.

    Attributes:
      vectors: float32 [N, H], in the order of the texts.
      tokens: number of tokens without padding, special ones included.
      computed_tokens: number of tokens with padding.
      traces: how often the program was traced or compiled so far; None if it does not count.
    """

    vectors: np.ndarray
    tokens: int
    computed_tokens: int
    traces: int | None = None


class Job(Protocol):
    """Takes texts and computes the mean of their tokens in the last layer; tokenizing included.

    `finish` runs outside of the timed part.
    """

    def run(self, corpus: Corpus) -> Any:
        """Runs the timed part."""

    def finish(self, result: Any) -> Done:
        """Makes the result from the return value of `run`."""


class Encoder(Protocol):
    """Takes batches of ids and computes the last layer as NumPy float32 [B, S, H]."""

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """Runs the timed part."""


class Calls(Protocol):
    """Takes one short text, again and again.

    Attributes:
      ways: what can be timed: name -> a call that computes the text's vector, [1, H].
    """

    ways: dict[str, Callable[[], np.ndarray]]


def threads() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class SortedBatches:
    """The fastest loop for runtimes that have none of their own.

    Tokenizes all texts in parallel with `tokenizers`, sorts them by length, longest first, and pads
    each batch to its longest row.

    Args:
      folder: folder that holds `tokenizer.json`.
      max_length: maximum number of tokens in a row.
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
        """Yields (indices of the rows among the texts, model inputs int64 [B, S]).

        Args:
          texts: the texts to tokenize.
          batch_size: rows of a batch.
          length: pads all rows to this length and keeps the order of the texts; None sorts them
            and pads each batch to its longest row.
        """
        self.tokens = self.computed_tokens = 0
        ids = self._ids(texts)
        lengths = np.array([len(row) for row in ids])
        order = np.arange(len(ids)) if length else np.argsort(-lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = _padded([ids[row] for row in rows], length or int(lengths[rows].max()))
            self.tokens += int(lengths[rows].sum())
            self.computed_tokens += inputs["input_ids"].size
            yield rows, inputs

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def count(self, texts: Sequence[str], batch_size: int) -> tuple[int, int]:
        """Number of tokens without and with padding, if batches keep the order of the texts.

        For programs that do not report them; each batch is padded to its longest row.
        """
        lengths = np.array([len(row) for row in self._ids(texts)])
        batches = [lengths[i : i + batch_size] for i in range(0, len(lengths), batch_size)]
        return int(lengths.sum()), sum(len(batch) * int(batch.max()) for batch in batches)


class SortedWords(SortedBatches):
    """`SortedBatches` for texts as words, which are separated by white space."""

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        words = [text.split() for text in texts]
        encodings = self._tokenizer.encode_batch(words, is_pretokenized=True)
        self._word_ids = [encoding.word_ids for encoding in encodings]
        self._counts = [len(of_text) for of_text in words]
        return [encoding.ids for encoding in encodings]

    def weights(self, rows: np.ndarray, length: int) -> np.ndarray:
        """The matrices that average the tokens of each word.

        Args:
          rows: indices of texts, as `__call__` yields them.
          length: length S of the batch's rows.

        Returns:
          float32 [B, W, S] for at most W words: 1 / number of the word's tokens, else 0.
        """
        weights = np.zeros((len(rows), max(self._counts[row] for row in rows), length), np.float32)
        for i, row in enumerate(rows):
            for position, word in enumerate(self._word_ids[row]):
                if word is not None:
                    weights[i, word, position] = 1.0
        return weights / np.maximum(weights.sum(-1, keepdims=True), 1.0)

    def num_words(self, row: int) -> int:
        """Number of words of a text."""
        return self._counts[row]


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
