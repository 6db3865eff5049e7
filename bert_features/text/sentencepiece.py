"""SentencePieceTokenizer: ALBERT's and XLM-R's tokenizers, as a TensorFlow graph and for Python.

Shape legend: `B` texts, `P` pieces of all of them, `V` pieces of the model.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_features.errors import check_process
from bert_features.text import unicode_tables
from bert_features.text.albert_text import prepare
from bert_features.text.normalization import Characters
from bert_features.text.offsets import characters_at, make_pieces
from bert_features.text.sentencepiece_model import SentencePieceModel
from bert_features.text.tokenizer import Pieces, Tokenizer
from bert_features.text.vocabulary import ids_of

_BLANK = "▁"  # what SentencePiece writes for a blank, and puts before a text


class _Parts(NamedTuple):
    """What each piece of the model becomes: several if it ends in a digit and a comma, else itself.

    Attributes:
      ids: int32, the family's ids, those of one piece after those of another.
      counts: int64 [V], how many there are of each.
      behind: int64, the bytes of the piece behind each part.
      sizes: int64, the bytes of each part; of the first, if it begins the piece, not used.
    """

    ids: np.ndarray
    counts: np.ndarray
    behind: np.ndarray
    sizes: np.ndarray


class SentencePieceTokenizer(Tokenizer):
    """A tokenizer of SentencePiece, by tensorflow-text's own operation.

    The pieces are those of google-research/albert, and of fairseq's XLM-R. Special tokens typed in
    a text are ordinary characters; none are added.

    Args:
      model: the model.
      do_lower_case: whether ALBERT's texts are lower-cased.

    Raises:
      DeviceError: see `check_process`; also raised when the tokenizer is used.
    """

    def __init__(self, model: SentencePieceModel, *, do_lower_case: bool) -> None:
        check_process()
        self.tokens, self.frame = model.tokens, model.frame
        self.vocab = ids_of(self.tokens)
        self.do_lower_case = do_lower_case
        self._is_albert = model.is_albert
        self.operation = tf_text.SentencepieceTokenizer(model=model.content)
        self._model_ids = model.ids
        self._parts = self._part_commas() if model.is_albert else None
        self._graph = tf.function(
            self._ids, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )

    def __repr__(self) -> str:
        casing = "uncased" if self.do_lower_case else "cased"
        return f"<SentencePieceTokenizer: {len(self.tokens):,} pieces, {casing}>"

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of a batch of texts, string [B] -> int32 ragged [B, pieces]; none is special."""
        check_process()
        return self._graph(tf.convert_to_tensor(texts, tf.string))

    def ids_of(self, texts: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a batch of texts as flat arrays, see `Tokenizer`."""
        ids = self._graph(texts)
        return ids.values.numpy(), np.diff(ids.row_splits.numpy())

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """The ids of a batch of texts and where each came from, see `Tokenizer`.

        White space around a piece is left out; `▁` alone is empty. Marks that were stripped after a
        piece belong to it.
        """
        check_process()
        decoded = _decode(texts)
        codes, text_lengths = decoded.values.numpy(), decoded.row_lengths().numpy()
        text_ends = np.cumsum(text_lengths)
        origins, prepared = np.arange(len(codes)), texts
        if self._is_albert:
            characters = prepare(decoded, do_lower_case=self.do_lower_case)
            origins, prepared = characters.origins.numpy(), _encode(characters, decoded.nrows())
        found, *bounds = self.operation.tokenize_with_offsets(prepared)
        source, ids, starts, ends = self._part(
            found.values.numpy(), *(bound.values.numpy().astype(np.int64) for bound in bounds)
        )
        row = found.value_rowids().numpy()[source]
        strings, origins = prepared.numpy().tolist(), np.append(origins, len(codes))
        first = np.minimum(origins[characters_at(strings, row, starts)], text_ends[row])
        last = origins[characters_at(strings, row, np.maximum(ends - 1, starts))]
        past = last + (ends > starts)
        if self._is_albert:
            past = _behind_marks(codes, past)
        return make_pieces(
            ids,
            np.bincount(row, minlength=len(text_lengths)),
            first - (text_ends - text_lengths)[row],
            np.minimum(past, text_ends[row]) - (text_ends - text_lengths)[row],
            codes=codes,
            text_lengths=text_lengths,
            # Of a character that became several, SentencePiece gives the whole to the last alone.
            empty=ids == self.vocab.get(_BLANK),
        )

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._is_albert:
            decoded = _decode(texts)
            characters = prepare(decoded, do_lower_case=self.do_lower_case)
            texts = _encode(characters, decoded.nrows())
        pieces = self.operation.tokenize(texts)
        if self._parts is None:
            return pieces.with_values(tf.gather(self._model_ids, pieces.values))
        parts = tf.RaggedTensor.from_row_lengths(self._parts.ids, self._parts.counts)
        return tf.gather(parts, pieces).merge_dims(1, 2)

    def _part_commas(self) -> _Parts | None:
        """A comma after a digit is a piece of its own, as in google-research/albert.

        That code splits what is before the comma again. None if no piece ends like that.
        """
        texts = [
            token[:-1].replace(_BLANK, "") if token[-1:] == "," and token[-2:-1].isdigit() else ""
            for token in self.tokens
        ]
        if not any(texts):
            return None
        made: list[list[tuple[int, str]]] = []
        for number, pieces in enumerate(self.operation.tokenize(texts).to_list()):
            parts = [self.tokens[piece] for piece in pieces]
            if not parts:
                made.append([(number, "")])
                continue
            if not self.tokens[number].startswith(_BLANK):
                parts = [part for part in (parts[0].removeprefix(_BLANK), *parts[1:]) if part]
            parts.append(",")
            made.append([(self.vocab.get(p, self.frame.unknown_id), p) for p in parts])
        sizes = [np.array([len(text.encode()) for _, text in parts]) for parts in made]
        return _Parts(
            ids=np.array([number for parts in made for number, _ in parts], np.int32),
            counts=np.array([len(parts) for parts in made], np.int64),
            behind=np.concatenate([np.cumsum(size[::-1])[::-1] - size for size in sizes]),
            sizes=np.concatenate(sizes),
        )

    def _part(
        self, pieces: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The pieces of the family.

        Args:
          pieces: int32, the model's pieces.
          starts: int64, the first byte of each.
          ends: int64, one past its last byte.

        Returns:
          The number among the model's pieces of each piece, its id and its bounds, [P] each.
        """
        if self._parts is None:
            return np.arange(len(pieces)), self._model_ids[pieces], starts, ends
        ids, all_counts, behind, sizes = self._parts
        counts = all_counts[pieces]
        source = np.repeat(np.arange(len(pieces)), counts)
        nth = np.arange(len(source)) - (np.cumsum(counts) - counts)[source]
        part = (np.cumsum(all_counts) - all_counts)[pieces][source] + nth
        # Counted from the end: before the beginning there may be a blank.
        ends = ends[source] - behind[part]
        starts = np.where(nth == 0, starts[source], ends - sizes[part])
        return source, ids[part], starts, ends


def _decode(texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")


def _encode(characters: Characters, count: tf.Tensor) -> tf.Tensor:
    """The characters of `count` texts as UTF-8, string [B]."""
    rows = tf.RaggedTensor.from_value_rowids(
        characters.codes, characters.rows, nrows=count, validate=False
    )
    return tf.strings.unicode_encode(rows, "UTF-8")


def _behind_marks(codes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The first character at or behind each place that does not vanish."""
    count = len(codes)
    left = np.where(unicode_tables.plain().lengths.of(codes) > 0, np.arange(count), count)
    following = np.minimum.accumulate(np.append(left, count)[::-1])[::-1]
    found: np.ndarray = following[places]
    return found
