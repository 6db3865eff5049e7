"""Tokenizer: what every tokenizer offers; `tokenization` has BERT's.

Shape legend: `B` texts, `P` pieces of all texts.
"""

import abc
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from bert_features.errors import CheckpointError, check_process
from bert_features.text.frame import Frame


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


class Pieces(NamedTuple):
    """The pieces of a batch of texts and where they came from.

    Attributes:
      ids: int32 ragged [B, pieces].
      starts: int32 ragged [B, pieces], the first character of each piece: an index into the text
        as a Python string (characters, not bytes).
      ends: int32 ragged [B, pieces], one past the last character; accents that were stripped
        directly after it are included.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Tokenizer(abc.ABC):
    """What every tokenizer offers.

    Attributes:
      tokens: the pieces in the order of their ids.
      vocab: piece -> id.
      in_graph: whether it can be called on a string tensor, and so be a part of a SavedModel.
      splits_words: whether it splits words as BERT does, and so makes the same pieces of a word
        whether the word stands in a text or alone.
      model_type: the family, whose special tokens a vocabulary of WordPiece has.
      markers: the ids of pieces that are single tokens where a text has their characters, as a
        prompt may; `batches.pieces` sees to it.
    """

    in_graph: ClassVar[bool] = True
    splits_words: bool = False
    tokens: list[str]
    vocab: dict[str, int]
    do_lower_case: bool
    model_type: str = ""
    markers: tuple[int, ...] = ()

    @functools.cached_property
    def frame(self) -> Frame:
        """Its special tokens; a CheckpointError if the vocabulary lacks the first or the last."""
        return Frame.of_wordpiece(self.vocab, self.model_type)

    @property
    def known_frame(self) -> Frame | None:
        """Its special tokens; None if the vocabulary lacks the first or the last."""
        try:
            return self.frame
        except CheckpointError:
            return None

    @functools.cached_property
    def begins_word(self) -> np.ndarray:
        """Whether each piece of WordPiece is the first of a word, bool [vocabulary].

        No word of a text begins with `##`: `#` is punctuation and a word of its own.
        """
        return np.array([not token.startswith("##") for token in self.tokens])

    @abc.abstractmethod
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of a batch of texts, string [B] -> int32 ragged [B, pieces]; none is special."""

    @abc.abstractmethod
    def ids_of(self, texts: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The ids of texts, string [B], as flat arrays; what a call gives, in less time for few.

        They are int32 [P], and the number of ids of each text int64 [B].
        """

    @abc.abstractmethod
    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """The ids of a batch of texts, string [B], and where each piece came from."""

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

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Vocabulary ids of pieces.

        Raises:
          KeyError: a piece is not in the vocabulary.
        """
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Pieces of vocabulary ids; raises IndexError for one that is not in the vocabulary."""
        ids = list(ids)
        if ids and min(ids) < 0:
            raise IndexError(f"id {min(ids)} is negative; allowed: 0 to {len(self.tokens) - 1}")
        return [self.tokens[i] for i in ids]


def utf8(text: str) -> bytes:
    """UTF-8 of a Python string.

    A lone surrogate, which UTF-8 cannot hold, becomes a private-use character: to the official
    tokenizer both are letters that are in no vocabulary.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ue000", text).encode("utf-8")
