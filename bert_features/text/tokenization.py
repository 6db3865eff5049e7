"""The BERT tokenizer as a TensorFlow graph: the ids of google-research/bert's FullTokenizer.

Two ways lead to the same ids. Texts of characters for which tensorflow-text's FastBertTokenizer
agrees with the official tokenizer (`FAST_CHARACTERS`) take it. It folds case by NFKC, breaks words
at control characters and stumbles behind unknown words; so other texts are normalised here, code
point by code point, as the official BasicTokenizer does, and their words go to
FastWordpieceTokenizer.

Shape legend: `B` texts, `C` characters of all of them, `W` words, `P` pieces.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_features.errors import CheckpointError
from bert_features.text import unicode_tables
from bert_features.text.unicode_tables import (
    CAPITAL_SIGMA,
    CASE_IGNORABLE,
    CASED,
    CHINESE,
    DROPPED,
    FINAL_SIGMA,
    MARK,
    PAGE_BITS,
    PUNCTUATION,
    REORDERED,
    SPACE,
    TwoStageTable,
)
from bert_features.text.vocabulary import UNK, read_vocab

# google-research/bert, WordpieceTokenizer(max_input_chars_per_word=200). Hugging Face uses 100.
MAX_CHARS_PER_WORD = 200
_MAX_UTF8_BYTES = 4


class Pieces(NamedTuple):
    """The pieces of a batch of texts and where they came from.

    Attributes:
      ids: int32 ragged [B, pieces].
      starts: int32 ragged [B, pieces], the first character of each piece: an index into the text
        as a Python string (characters, not bytes).
      ends: int32 ragged [B, pieces], one past the last character; accents that were stripped
        directly behind it are included.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


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


# Characters, all of them assigned by Unicode 14 and therefore frozen, that FastBertTokenizer treats
# as the official tokenizer does, each on its own and so in any sequence: its normaliser works
# character by character, and neither final sigma nor canonical reordering concerns them.
# tests/text/test_tokenization.py tries each one, cased and uncased, in several contexts.
FAST_CHARACTERS = (
    r"!-~"  # ASCII
    r"¡-§©«®°±¶·»¿-Þà-ıĴ-ľŁ-ňŊ-žƀ-ƃǍ-ǰǴ-ʯ"  # Latin without ª º ligatures ŉ ſ
    r"Ά-ΊΌΎ-ΡΤ-ρσ-ώ"  # Greek without capital and final sigma
    r"А-ѿҊ-ԯ"  # Cyrillic
    r"Ա-Ֆ՚-օ"  # Armenian without the ligature
    r"א-ת"  # Hebrew letters
    r"ء-يً-٠-٩"  # Arabic letters, vowel signs and digits
    r"ऄ-हऽा-ौ"  # Devanagari
    r"–—‘-‟†-•‰′"  # general punctuation without the ellipsis and the double primes
    r"€"
)
_FAST_TEXT = f"[{FAST_CHARACTERS} \\t]*"


class _Characters(NamedTuple):
    """A run of characters of all texts of a batch, one after the other.

    Attributes:
      codes: int32 [C], code points.
      rows: int64 [C], the text each belongs to.
      origins: int32 [C], the character of the decoded batch that each came from.
    """

    codes: tf.Tensor
    rows: tf.Tensor
    origins: tf.Tensor

    def keep(self, mask: tf.Tensor) -> "_Characters":
        """Those where `mask` holds."""
        return self.take(tf.where(mask)[:, 0])

    def take(self, indices: tf.Tensor) -> "_Characters":
        """Those at `indices`."""
        return _Characters(*(tf.gather(part, indices) for part in self))


class _Words(NamedTuple):
    """The words of a batch after normalisation.

    Attributes:
      characters: those of all words; blanks and everything dropped are gone.
      starts: int64 [W], where each word begins in `characters`.
      texts: string [W], UTF-8; `[UNK]` for a word over the official bound.
      rows: int64 [W], the text each belongs to.
    """

    characters: _Characters
    starts: tf.Tensor
    texts: tf.Tensor
    rows: tf.Tensor


def _lookup(table: TwoStageTable, codes: tf.Tensor) -> tf.Tensor:
    page = tf.gather(table.pages, tf.bitwise.right_shift(codes, PAGE_BITS))
    offset = tf.bitwise.bitwise_and(codes, (1 << PAGE_BITS) - 1)
    return tf.gather(table.values, page + offset)


def _has(bits: tf.Tensor, mask: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(bits, tf.constant(mask, tf.uint8)) != 0


def _changes(rows: tf.Tensor) -> tf.Tensor:
    """Bool [C]: whether a text begins here."""
    return tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)


class _TracedLater:
    """A function of string [B] as a graph, traced once, whatever is built of it.

    Its first call goes op by op: that takes 0.04 s, and tracing half a second.
    """

    def __init__(self, function: Callable[[tf.Tensor], Any]) -> None:
        self._function = function
        self._graph = tf.function(
            function, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )
        self._called = False

    def __call__(self, texts: tf.Tensor) -> Any:
        if self._called or not tf.executing_eagerly():
            return self._graph(texts)
        self._called = True
        return self._function(texts)


class FullTokenizer:
    """The official BERT tokenizer, as a TensorFlow graph and for Python.

    Called on a string tensor it is a graph: usable inside tf.data and inside a SavedModel. Special
    tokens typed in a text are ordinary characters; none are added.

    Args:
      vocab: the pieces in the order of their ids, or the path of a `vocab.txt`.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.

    Raises:
      CheckpointError: the vocabulary cannot be read or lacks `[UNK]`.
    """

    def __init__(self, vocab: Sequence[str] | str | Path, *, do_lower_case: bool = True) -> None:
        self.tokens = read_vocab(Path(vocab)) if isinstance(vocab, str | Path) else list(vocab)
        self.do_lower_case = do_lower_case
        # Of a piece that stands twice the official script keeps the last; as there, a blank line
        # is a piece, which no text can match.
        self.vocab = {token: index for index, token in enumerate(self.tokens)}
        if UNK not in self.vocab:
            raise CheckpointError(f"the vocabulary lacks {UNK}; it is not one of BERT's")
        self._ids_of = _TracedLater(self._ids)
        self._pieces_of = _TracedLater(self._pieces)
        matchable = [
            token if token and self.vocab[token] == index else f" {index}"
            for index, token in enumerate(self.tokens)
        ]
        self._fast = tf_text.FastBertTokenizer(
            matchable,
            max_bytes_per_word=MAX_CHARS_PER_WORD,
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=do_lower_case,
        )
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            matchable,
            max_bytes_per_word=MAX_CHARS_PER_WORD * _MAX_UTF8_BYTES,
            token_out_type=tf.int32,
            no_pretokenization=True,
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenises a batch of texts.

        Args:
          texts: string [B], UTF-8; bytes that are not UTF-8 are dropped, as the official script
            drops them.

        Returns:
          int32 ragged [B, pieces], without [CLS] and [SEP].
        """
        return self._ids_of(tf.convert_to_tensor(texts, tf.string))

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        eligible = tf.strings.regex_full_match(texts, _FAST_TEXT)
        ids = self._fast.tokenize(tf.where(eligible, texts, ""))
        # A text with an [UNK] is never left to it. Behind a word that it does not know it makes
        # another [UNK] of a second blank, or loses the next word (tensorflow-text 2.20); and it
        # bounds words by bytes, not characters.
        unknown = ids.values == self.vocab[UNK]
        return tf.cond(
            tf.reduce_all(eligible) & ~tf.reduce_any(unknown),
            lambda: ids,
            lambda: self._complete(texts, ids, eligible & ~_any_in_row(unknown, ids)),
        )

    def _complete(
        self, texts: tf.Tensor, ids: tf.RaggedTensor, settled: tf.Tensor
    ) -> tf.RaggedTensor:
        """The rows of `ids` that are settled, the others made in the exact way."""
        exact = tf.where(~settled)[:, 0]
        rows = tf.concat([ids, self._exact(tf.gather(texts, exact))], axis=0)
        count = tf.size(texts, tf.int64)
        nth_exact = tf.cumsum(tf.cast(~settled, tf.int64)) - 1
        return tf.gather(rows, tf.where(settled, tf.range(count), count + nth_exact))

    def _exact(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = self._words(_decode(texts))
        pieces = self._wordpiece.tokenize(words.texts)
        return tf.RaggedTensor.from_value_rowids(
            pieces.values,
            tf.gather(words.rows, pieces.value_rowids()),
            nrows=tf.size(texts, tf.int64),
            validate=False,
        )

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Tokenises a batch of texts and says where each piece came from.

        Args:
          texts: string [B], UTF-8.

        Returns:
          `Pieces`, each int32 ragged [B, pieces]; the ids are those of calling the tokenizer.
        """
        return self._pieces_of(tf.convert_to_tensor(texts, tf.string))

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        words = self._words(_flatten(decoded))
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(words.texts)
        word = ids.value_rowids()
        first, last = self._characters_of_pieces(words, word, ids, starts, ends)
        origins = words.characters.origins
        row = tf.gather(words.rows, word)
        text_start = tf.cast(tf.gather(decoded.row_starts(), row), tf.int32)
        char_ends = self._char_ends(decoded)
        first_origin, last_origin = tf.gather(origins, first), tf.gather(origins, last)
        # Canonical ordering may have put a later character first.
        piece_starts = tf.minimum(first_origin, last_origin) - text_start
        piece_ends = tf.gather(char_ends, tf.maximum(first_origin, last_origin)) - text_start
        nrows = tf.size(texts, tf.int64)
        return Pieces(
            *(
                tf.RaggedTensor.from_value_rowids(values, row, nrows=nrows, validate=False)
                for values in (ids.values, piece_starts, piece_ends)
            )
        )

    def _characters_of_pieces(
        self,
        words: _Words,
        word: tf.Tensor,
        ids: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Indices into `words.characters` of each piece's first and last character, int64 [P]."""
        codes = words.characters.codes
        count = tf.size(codes, tf.int64)
        widths = 1 + sum(tf.cast(codes >= bound, tf.int32) for bound in (0x80, 0x800, 0x10000))
        character_at_byte = tf.repeat(tf.range(count), widths)
        byte_starts = tf.cumsum(tf.cast(widths, tf.int64), exclusive=True)
        word_byte = tf.gather(tf.gather(byte_starts, words.starts), word)
        word_ends = tf.concat([words.starts[1:], count[None]], axis=0)
        # An [UNK] stands for its whole word; where the word was over the bound, the bytes are
        # those of the word "[UNK]".
        unknown = ids.values == self.vocab[UNK]
        size = tf.size(character_at_byte, tf.int64)
        first_byte = tf.minimum(word_byte + starts.values, size - 1)
        last_byte = tf.minimum(word_byte + ends.values - 1, size - 1)
        first = tf.where(
            unknown, tf.gather(words.starts, word), tf.gather(character_at_byte, first_byte)
        )
        last = tf.where(
            unknown, tf.gather(word_ends, word) - 1, tf.gather(character_at_byte, last_byte)
        )
        return first, last

    def _char_ends(self, decoded: tf.RaggedTensor) -> tf.Tensor:
        """int32 [C]: one past each decoded character and the accents stripped behind it."""
        count = tf.size(decoded.values)
        if not self.do_lower_case:
            return tf.range(1, count + 1)
        bits = _lookup(unicode_tables.properties(), decoded.values)
        standing = tf.cast(tf.where(~_has(bits, MARK))[:, 0], tf.int32)
        following = tf.concat([standing[1:], count[None]], axis=0)
        rank = tf.cumsum(tf.cast(~_has(bits, MARK), tf.int32)) - 1
        # A text that begins with accents has no character before them; those ends are never asked.
        next_standing = tf.gather(tf.concat([count[None], following], axis=0), rank + 1)
        text_end = tf.gather(tf.cast(decoded.row_limits(), tf.int32), decoded.value_rowids())
        return tf.minimum(next_standing, text_end)

    def _words(self, characters: _Characters) -> _Words:
        """The official BasicTokenizer: clean, lower, strip accents, split."""
        properties = unicode_tables.properties()
        characters = characters.keep(~_has(_lookup(properties, characters.codes), DROPPED))
        isolated = _has(_lookup(properties, characters.codes), CHINESE)
        if self.do_lower_case:
            characters, isolated = _lower_and_strip(characters, isolated)
        bits = _lookup(properties, characters.codes)
        isolated |= _has(bits, PUNCTUATION)
        return _split(characters, space=_has(bits, SPACE), isolated=isolated)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of one text, as the official method of this name.

        For many texts call `encode`, which is faster by far.
        """
        return self.encode([text])[0].tokens

    def encode(self, texts: Iterable[str]) -> list[Encoding]:
        """Ids, pieces and character offsets of each text."""
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
        """Bool [vocabulary]: whether a piece is a word's first. No text makes a word that begins
        with `##`, as `#` is punctuation and stands alone.
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


def _any_in_row(mask: tf.Tensor, rows: tf.RaggedTensor) -> tf.Tensor:
    """Whether `mask`, one for each value of `rows`, holds anywhere in a row: bool [B]."""
    counts = tf.pad(tf.cumsum(tf.cast(mask, tf.int32)), [[1, 0]])
    at_splits = tf.gather(counts, rows.row_splits)
    return at_splits[1:] > at_splits[:-1]


def utf8(text: str) -> bytes:
    """UTF-8 of a Python string.

    A lone surrogate, which UTF-8 cannot hold, becomes a private-use character: to the official
    tokenizer both are letters that no vocabulary has.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ue000", text).encode("utf-8")


def _decode(texts: tf.Tensor) -> _Characters:
    return _flatten(tf.strings.unicode_decode(texts, "UTF-8"))


def _flatten(decoded: tf.RaggedTensor) -> _Characters:
    return _Characters(
        codes=decoded.values,
        rows=decoded.value_rowids(),
        origins=tf.range(tf.size(decoded.values)),
    )


def _lower_and_strip(
    characters: _Characters, ideograph: tf.Tensor
) -> tuple[_Characters, tf.Tensor]:
    """str.lower(), NFD, and no non-spacing marks; `ideograph` [C] follows its characters."""
    codes = tf.cond(
        tf.reduce_any(characters.codes == CAPITAL_SIGMA),
        lambda: _final_sigmas(characters),
        lambda: characters.codes,
    )
    characters = characters._replace(codes=codes)
    tables = unicode_tables.decompositions()
    lengths = _lookup(tables.lengths, codes)
    first = codes + _lookup(tables.deltas, codes)
    source, decomposed = tf.cond(
        tf.reduce_all(lengths == 1),
        lambda: (tf.range(tf.size(codes)), first),
        lambda: _expand(codes, first, lengths),
    )
    characters = characters.take(source)._replace(codes=decomposed)
    ideograph = tf.gather(ideograph, source)
    bits = _lookup(unicode_tables.properties(), characters.codes)
    order = tf.cond(
        tf.reduce_any(_has(bits, REORDERED)),
        lambda: _canonical_order(characters),
        lambda: tf.range(tf.size(characters.codes)),
    )
    kept = tf.boolean_mask(order, ~_has(tf.gather(bits, order), MARK))
    return characters.take(kept), tf.gather(ideograph, kept)


def _expand(codes: tf.Tensor, first: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decomposes every code point: (the index it came from, the code point), both int32."""
    tables = unicode_tables.decompositions()
    source = tf.repeat(tf.range(tf.size(codes)), lengths)
    nth = tf.range(tf.size(source)) - tf.gather(tf.cumsum(lengths, exclusive=True), source)
    tail = tf.gather(_lookup(tables.tail_starts, codes), source) + nth - 1
    rest = tf.gather(tables.tails, tf.clip_by_value(tail, 0, len(tables.tails) - 1))
    return source, tf.where(nth == 0, tf.gather(first, source), rest)


def _canonical_order(characters: _Characters) -> tf.Tensor:
    """int32 [C]: the Unicode canonical ordering (UAX 15): marks sorted by combining class.

    A starter (class 0) opens a segment, and sorts first in it; so one stable sort does all.
    """
    classes = tf.cast(_lookup(unicode_tables.combining_classes(), characters.codes), tf.int64)
    starts = (classes == 0) | _changes(characters.rows)
    segments = tf.cumsum(tf.cast(starts, tf.int64))
    return tf.argsort(segments * 256 + classes, stable=True)


def _final_sigmas(characters: _Characters) -> tf.Tensor:
    """Code points with each capital sigma that ends a word made final, as str.lower() does.

    Final is a sigma behind a cased letter and not before one, case-ignorable characters between
    them not counting (Unicode's Final_Sigma condition). Blanks and ideographs are neither, so the
    bounds of words need no care of their own; those of texts do.
    """
    codes, rows, _ = characters
    bits = _lookup(unicode_tables.properties(), codes)
    telling = tf.where(~_has(bits, CASE_IGNORABLE))[:, 0]
    cased = _has(tf.gather(bits, telling), CASED)
    row = tf.gather(rows, telling)
    same_row = row[1:] == row[:-1]
    no = tf.zeros([1], tf.bool)
    cased_before = tf.concat([no, cased[:-1] & same_row], axis=0)
    cased_behind = tf.concat([cased[1:] & same_row, no], axis=0)
    is_sigma = tf.gather(codes, telling) == CAPITAL_SIGMA
    final = tf.boolean_mask(telling, is_sigma & cased_before & ~cased_behind)
    return tf.tensor_scatter_nd_update(codes, final[:, None], tf.fill(tf.shape(final), FINAL_SIGMA))


def _split(characters: _Characters, *, space: tf.Tensor, isolated: tf.Tensor) -> _Words:
    """Words: runs without blanks, and each isolated character alone."""
    after_break = _changes(characters.rows) | tf.concat(
        [tf.ones_like(space[:1]), (space | isolated)[:-1]], axis=0
    )
    standing = tf.where(~space)[:, 0]
    starts = tf.where(tf.gather(after_break | isolated, standing))[:, 0]
    characters = characters.take(standing)
    ragged = tf.RaggedTensor.from_row_starts(characters.codes, starts, validate=False)
    texts = tf.strings.unicode_encode(ragged, "UTF-8")
    texts = tf.where(ragged.row_lengths() > MAX_CHARS_PER_WORD, UNK, texts)
    return _Words(characters, starts, texts, rows=tf.gather(characters.rows, starts))
