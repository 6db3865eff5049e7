"""FullTokenizer: the BERT tokenizer, as a TensorFlow graph and for Python.

Shape legend: `B` texts.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import CheckpointError, check_process
from bert_features.text.vocabulary import UNK, ids_of, matchable, read_vocab, warn_of_duplicates
from bert_features.text.wordpiece import Pieces, WordPiece


@dataclass(frozen=True)
class Encoding:
    """One text's pieces, in Python.

    Attributes:
      ids: vocabulary ids.
      tokens: the pieces themselves.
      offsets: (start, end) of each piece, in characters of the text.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


class FullTokenizer:
    """The official BERT tokenizer, as a TensorFlow graph and for Python.

    Called on a string tensor it is a graph: usable inside tf.data and inside a SavedModel. Special
    tokens typed in a text are ordinary characters; none are added.

    Args:
      vocab_file: the path of a `vocab.txt`, or the pieces in the order of their ids.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.

    Attributes:
      tokens: the pieces in the order of their ids.
      vocab: piece -> id.
      do_lower_case: as passed.

    Raises:
      CheckpointError: the vocabulary cannot be read, lacks `[UNK]`, or has a piece that is too
        long.
      DeviceError: see `check_process`; also raised when the tokenizer is used.
    """

    def __init__(self, vocab_file: str | Path | Sequence[str], do_lower_case: bool = True) -> None:
        check_process()
        if isinstance(vocab_file, str | Path):
            vocab_file = read_vocab(vocab_file)
        self.tokens = list(vocab_file)
        self.do_lower_case = do_lower_case
        self.vocab = ids_of(self.tokens)
        if UNK not in self.vocab:
            raise CheckpointError(f"the vocabulary lacks {UNK}; it is not one of BERT's")
        warn_of_duplicates(self.tokens)
        pieces = matchable(self.tokens)
        matcher = WordPiece(pieces, unknown_id=self.vocab[UNK], do_lower_case=do_lower_case)
        self._ids = _graph_of(matcher.ids)
        self._fast = _graph_of(lambda texts: _flat(*matcher.fast(texts)))
        self._exact = _TracedLater(matcher.exact)
        self._pieces = _TracedLater(matcher.pieces)

    def __repr__(self) -> str:
        casing = "uncased" if self.do_lower_case else "cased"
        return f"<FullTokenizer: {len(self.tokens):,} pieces, {casing}>"

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenises a batch of texts.

        Args:
          texts: string [B], UTF-8; bytes that are not UTF-8 are dropped, as the official script
            drops them.

        Returns:
          int32 ragged [B, pieces], without [CLS] and [SEP].
        """
        check_process()
        texts = tf.convert_to_tensor(texts, tf.string)
        if not tf.executing_eagerly():
            return self._ids(texts)
        ids, lengths = self.ids_of(texts)
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def ids_of(self, texts: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a batch of texts as flat arrays; what a call gives, in less time for few.

        Args:
          texts: string [B], UTF-8.

        Returns:
          int32 [P], the ids of all texts; int64 [B], the number of ids of each text.
        """
        ids, row_splits, settled = (part.numpy() for part in self._fast_graph(texts))
        lengths, unsettled = np.diff(row_splits), ~settled
        if not unsettled.any():
            return ids, lengths
        exact = self._exact(tf.boolean_mask(texts, unsettled))
        kept = ids[np.repeat(~unsettled, lengths)]
        lengths[unsettled] = exact.row_lengths().numpy()
        from_exact = np.repeat(unsettled, lengths)
        joined = np.empty(len(from_exact), np.int32)
        joined[from_exact], joined[~from_exact] = exact.values.numpy(), kept
        return joined, lengths

    @functools.cached_property
    def _fast_graph(self) -> Any:
        """The fast way. It is traced at once: op by op it takes five times as long."""
        return self._fast.get_concrete_function()

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Tokenises a batch of texts and finds where each piece came from.

        Args:
          texts: string [B], UTF-8.

        Returns:
          `Pieces`, each int32 ragged [B, pieces]; the ids are those of calling the tokenizer.
        """
        check_process()
        pieces: Pieces = self._pieces(tf.convert_to_tensor(texts, tf.string))
        return pieces

    def tokenize(self, text: str) -> list[str]:
        """The pieces of one text, as the official method of this name.

        For many texts call `encode`, which is much faster.
        """
        return self.convert_ids_to_tokens(self.encode_ids([text])[0])

    def encode_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of each text; faster than `encode`."""
        check_process()
        ids, lengths = self.ids_of(tf.constant([utf8(text) for text in texts], tf.string))
        return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])][: len(lengths)]

    def encode(self, texts: Iterable[str]) -> list[Encoding]:
        """Ids, pieces and character offsets of each text."""
        check_process()
        batch = [utf8(text) for text in texts]
        if not batch:
            return []
        pieces = self.tokenize_with_offsets(tf.constant(batch, tf.string))
        columns = (part.to_list() for part in pieces)
        return [
            Encoding(ids, self.convert_ids_to_tokens(ids), list(zip(starts, ends, strict=True)))
            for ids, starts, ends in zip(*columns, strict=True)
        ]

    @functools.cached_property
    def begins_word(self) -> np.ndarray:
        """Whether each piece is the first of a word, bool [vocabulary].

        No word of a text begins with `##`: `#` is punctuation and a word of its own.
        """
        return np.array([not token.startswith("##") for token in self.tokens])

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Vocabulary ids of pieces.

        Raises:
          KeyError: a piece is not in the vocabulary.
        """
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Pieces of vocabulary ids."""
        return [self.tokens[i] for i in ids]


# Tracing takes 0.5 s and saves some 0.03 s of each call, be the texts few or many. So it pays after
# this many calls.
_CALLS_BEFORE_TRACING = 16


def _flat(ids: tf.RaggedTensor, settled: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The parts of a result; to make a ragged tensor of them takes as long as to tokenize."""
    return ids.values, ids.row_splits, settled


def _graph_of(function: Callable[[tf.Tensor], Any]) -> Any:
    """A function of string [B] as a graph, which is traced at its first use."""
    return tf.function(
        function, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )


class _TracedLater:
    """A function of string [B] that is traced once, when it is called often enough.

    Until then each eager call runs op by op. Inside another graph the traced function is used from
    the start.
    """

    def __init__(self, function: Callable[[tf.Tensor], Any]) -> None:
        self._function = function
        self._graph = _graph_of(function)
        self._calls = 0

    def __call__(self, texts: tf.Tensor) -> Any:
        if not tf.executing_eagerly() or self._calls >= _CALLS_BEFORE_TRACING:
            return self._graph(texts)
        self._calls += 1
        return self._function(texts)

    @property
    def traces(self) -> int:
        """Number of times the graph was traced so far."""
        return int(self._graph.experimental_get_tracing_count())


def utf8(text: str) -> bytes:
    """UTF-8 of a Python string.

    A lone surrogate, which UTF-8 cannot hold, becomes a private-use character: to the official
    tokenizer both are letters that are in no vocabulary.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ue000", text).encode("utf-8")
