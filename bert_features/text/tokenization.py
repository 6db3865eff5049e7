"""FullTokenizer: the BERT tokenizer, as a TensorFlow graph and for Python.

Shape legend: `B` texts.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import CheckpointError, check_process
from bert_features.text.tokenizer import Pieces, Tokenizer
from bert_features.text.vocabulary import UNK, ids_of, matchable, read_vocab, warn_of_duplicates
from bert_features.text.wordpiece import WordPiece


class FullTokenizer(Tokenizer):
    """The official BERT tokenizer, as a TensorFlow graph and for Python.

    Called on a string tensor it is a graph: usable inside tf.data and inside a SavedModel. Special
    tokens typed in a text are ordinary characters; none are added.

    Args:
      vocab_file: the path of a `vocab.txt`, or the pieces in the order of their ids.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.
      strip_accents: whether to strip accents; None where it lower-cases.
      tokenize_chinese_chars: whether each Chinese character is a word.
      model_type: the family, whose special tokens the frame has: BERT's, or of `mpnet`.

    Attributes:
      tokens: the pieces in the order of their ids.
      vocab: piece -> id.
      do_lower_case: as passed.
      switches: the other arguments, by name.

    Raises:
      CheckpointError: the vocabulary cannot be read, lacks `[UNK]`, or has a piece that is too
        long.
      DeviceError: see `check_process`; also raised when the tokenizer is used.
    """

    splits_words = True

    def __init__(
        self,
        vocab_file: str | Path | Sequence[str],
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        model_type: str = "",
    ) -> None:
        check_process()
        if isinstance(vocab_file, str | Path):
            vocab_file = read_vocab(vocab_file)
        self.tokens = list(vocab_file)
        self.do_lower_case = do_lower_case
        self.model_type = model_type
        self.vocab = ids_of(self.tokens)
        if UNK not in self.vocab:
            raise CheckpointError(f"the vocabulary lacks {UNK}; it is not one of BERT's")
        warn_of_duplicates(self.tokens)
        pieces = matchable(self.tokens)
        rules = {"strip_accents": strip_accents, "tokenize_chinese_chars": tokenize_chinese_chars}
        self.switches = {"model_type": model_type, **rules}
        matcher = WordPiece(
            pieces, unknown_id=self.vocab[UNK], do_lower_case=do_lower_case, **rules
        )
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
        """The ids of a batch of texts as flat arrays, see `Tokenizer`."""
        ids, row_splits, settled = (part.numpy() for part in self._fast_graph(texts))
        lengths, unsettled = np.diff(row_splits), ~settled
        if not unsettled.any():
            return ids, lengths
        exact = self._exact(tf.boolean_mask(texts, unsettled))
        kept = ids[np.repeat(~unsettled, lengths)]
        lengths[unsettled] = exact.row_lengths().numpy()
        is_exact = np.repeat(unsettled, lengths)
        joined = np.empty(len(is_exact), np.int32)
        joined[is_exact], joined[~is_exact] = exact.values.numpy(), kept
        return joined, lengths

    @functools.cached_property
    def _fast_graph(self) -> Any:
        """The fast way. It is traced at once: op by op it takes five times as long."""
        return self._fast.get_concrete_function()

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """The ids of a batch of texts and where each came from, see `Tokenizer`."""
        check_process()
        pieces: Pieces = self._pieces(tf.convert_to_tensor(texts, tf.string))
        return pieces


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
