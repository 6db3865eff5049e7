"""SentencePieceTokenizer: ALBERT's and XLM-R's tokenizers, as a TensorFlow graph and for Python.

Shape legend: `B` texts, `C` characters and `P` pieces of all texts, `V` pieces of the model.
"""

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_features.errors import check_process
from bert_features.text import unicode_tables
from bert_features.text.normalization import Characters, decompose, look_up, with_final_sigmas
from bert_features.text.offsets import characters_at, make_pieces
from bert_features.text.sentencepiece_model import SentencePieceModel
from bert_features.text.tokenizer import Pieces, Tokenizer
from bert_features.text.vocabulary import ids_of

_BLANK = "▁"  # what SentencePiece writes for a blank, and puts before a text


class SentencePieceTokenizer(Tokenizer):
    """A tokenizer of SentencePiece, by tensorflow-text's own operation.

    The ids are as in google-research/albert, and in fairseq's XLM-R. Special tokens typed in a
    text are ordinary characters; none are added.

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
        self._is_albert, self._keep_accents = model.is_albert, "keep_accents" in model.rules
        self._model_ids = model.ids
        self.operation = tf_text.SentencepieceTokenizer(model=model.content)
        self._parts = self._part_commas() if model.is_albert else None
        self._graph = tf.function(
            self._ids, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )

    def __repr__(self) -> str:
        casing = "uncased" if self.do_lower_case else "cased"
        return f"<SentencePieceTokenizer: {len(self.tokens):,} pieces, {casing}>"

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of a batch of texts, see `Tokenizer`."""
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
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        codes, text_lengths = decoded.values.numpy(), decoded.row_lengths().numpy()
        origins = np.arange(len(codes))
        if self._is_albert:
            texts, origins = self._prepare(decoded)
            origins = origins.numpy()
        pieces, *bounds = self.operation.tokenize_with_offsets(texts)
        ids, row = pieces.values.numpy(), pieces.value_rowids().numpy()
        starts, ends = (bound.values.numpy().astype(np.int64) for bound in bounds)
        if self._parts is None:
            ids = self._model_ids[ids]
        else:
            counts = np.diff(self._parts.row_splits.numpy())[ids]
            ids = tf.gather(self._parts, ids).values.numpy()
            row, starts, ends, several = np.repeat([row, starts, ends, counts > 1], counts, axis=1)
            # The comma is the last byte of its piece, and the number before it one place.
            comma = np.diff(np.repeat(np.arange(len(counts)), counts), append=len(counts)) > 0
            starts = np.where(comma & (several > 0), ends - 1, starts)
            ends = ends - (~comma & (several > 0))
        text_ends, strings = np.cumsum(text_lengths), texts.numpy().tolist()
        text_starts = (text_ends - text_lengths)[row]
        origins = np.append(origins, len(codes))
        first = origins[characters_at(strings, row, starts)]
        last = origins[characters_at(strings, row, np.maximum(ends - 1, starts))]
        past = last + (ends > starts)
        if self._is_albert and not self._keep_accents:
            marks = unicode_tables.decompositions("plain").lengths.of(codes) == 0
            behind = np.append(np.where(marks, len(codes), np.arange(len(codes))), len(codes))
            past = np.minimum.accumulate(behind[::-1])[::-1][past]
        return make_pieces(
            ids,
            np.bincount(row, minlength=len(text_lengths)),
            np.minimum(first, text_ends[row]) - text_starts,
            np.minimum(past, text_ends[row]) - text_starts,
            codes=codes,
            text_lengths=text_lengths,
            # Where a character became several, SentencePiece gives the whole to the last alone.
            empty=ids == self.vocab.get(_BLANK),
        )

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._is_albert:
            texts, _ = self._prepare(tf.strings.unicode_decode(texts, "UTF-8", errors="ignore"))
        pieces = self.operation.tokenize(texts)
        if self._parts is None:
            return pieces.with_values(tf.gather(self._model_ids, pieces.values))
        return tf.gather(self._parts, pieces).merge_dims(1, 2)

    def _prepare(self, decoded: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """ALBERT's texts, string [B], and where their characters come from in `decoded`, int32."""
        characters = _albert_characters(
            decoded, do_lower_case=self.do_lower_case, keep_accents=self._keep_accents
        )
        rows = tf.RaggedTensor.from_value_rowids(
            characters.codes, characters.rows, nrows=decoded.nrows(), validate=False
        )
        return tf.strings.unicode_encode(rows, "UTF-8"), characters.origins

    def _part_commas(self) -> tf.RaggedTensor | None:
        """The ids that each piece becomes, int32 ragged [V, parts]; None if all stay as they are.

        As in google-research/albert a comma after a digit is a piece of its own, and what is before
        it is split again.
        """
        numbers = [
            token[:-1].replace(_BLANK, "") if token[-1:] == "," and token[-2:-1].isdigit() else ""
            for token in self.tokens
        ]
        if not any(numbers):
            return None
        made = [[piece] for piece in range(len(self.tokens))]
        for piece, ids in enumerate(self.operation.tokenize(numbers).to_list()):
            parts = [self.tokens[number] for number in ids]
            if parts and not self.tokens[piece].startswith(_BLANK):
                parts[0] = parts[0].removeprefix(_BLANK)
            if parts:
                named = [part for part in (*parts, ",") if part]
                made[piece] = [self.vocab.get(part, self.frame.unknown_id) for part in named]
        return tf.ragged.constant(made, tf.int32, row_splits_dtype=tf.int64)


def _albert_characters(
    decoded: tf.RaggedTensor, *, do_lower_case: bool, keep_accents: bool = False
) -> Characters:
    """The characters that SentencePiece gets of texts, int32 ragged [B, characters].

    As `preprocess_text` of google-research/albert's tokenization.py: single blanks between words,
    compatibility decomposition (NFKD) without combining marks, unless accents are kept; lower case.
    """
    characters = _single_blanks(Characters.of(decoded), decoded.row_starts())
    if not keep_accents:
        # The order of marks, which NFKD also changes, does not matter: they all go.
        characters, _ = decompose(characters, unicode_tables.decompositions("plain"))
    if do_lower_case:
        characters = with_final_sigmas(characters)
        characters, _ = decompose(characters, unicode_tables.decompositions("accented"))
    return characters


def _single_blanks(characters: Characters, row_starts: tf.Tensor) -> Characters:
    """The characters with one blank between two words, and none around a text."""
    rows = characters.rows
    blank = look_up(unicode_tables.table("white_space"), characters.codes) != 0
    words = tf.cumsum(tf.cast(~blank, tf.int32), exclusive=True)
    started = words > tf.gather(words, tf.gather(row_starts, rows))
    ends = tf.concat([~blank[1:] & (rows[1:] == rows[:-1]), tf.zeros_like(blank[:1])], axis=0)
    codes = tf.where(blank, ord(" "), characters.codes)
    return characters._replace(codes=codes).keep(~blank | (started & ends))
