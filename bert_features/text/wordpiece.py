"""WordPiece matching as a TensorFlow graph: the ids of google-research/bert's FullTokenizer.

There are two ways to the same ids. The fast way is tensorflow-text's FastBertTokenizer; it takes
texts made only of characters on which it agrees with the official tokenizer (`FAST_CHARACTERS`).
It folds case by NFKC, breaks words at control characters and makes mistakes after unknown words.
All other texts take the exact way: `normalization` finds their words as the official
BasicTokenizer does, and FastWordpieceTokenizer matches these.

Shape legend: `B` texts, `C` characters of the whole batch, `W` words, `P` pieces.
"""

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import pywrap_fast_bert_normalizer_model_builder as normalizers
from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder as matchers

from bert_features.files import from_cache
from bert_features.text import unicode_tables
from bert_features.text.normalization import Characters, Words, find_words, has, look_up
from bert_features.text.tokenizer import Pieces
from bert_features.text.unicode_tables import MARK
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, UNK

_SUFFIX_INDICATOR = "##"
_MAX_UTF8_BYTES = 4  # of a character

# Characters that FastBertTokenizer treats as the official tokenizer does, each on its own and so in
# any sequence: its normaliser works character by character, and neither final sigma nor canonical
# reordering concerns them. Unicode 14 assigned them all, so their properties are frozen.
# tests/text/test_wordpiece.py tries each one, cased and uncased, in several contexts.
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
_ASCII_TEXT = r"[!-~ \t]*"


class WordPiece:
    """Matches texts with a vocabulary, inside a TensorFlow graph.

    Args:
      pieces: the pieces in the order of their ids; one that no text may match begins with a blank.
      unknown_id: the id of [UNK].
      do_lower_case: whether to lower-case.
      **rules: further arguments of `find_words`.
    """

    def __init__(
        self, pieces: Sequence[str], *, unknown_id: int, do_lower_case: bool, **rules: Any
    ) -> None:
        self._unknown_id = unknown_id
        strips = rules.get("strip_accents")
        self._strips = do_lower_case if strips is None else strips
        self._words: Callable[[Characters], Words] = functools.partial(
            find_words, do_lower_case=do_lower_case, **rules
        )
        # The fast way has one switch for case and accents; in ASCII there are no accents.
        self._fast_text = _FAST_TEXT if self._strips == do_lower_case else _ASCII_TEXT
        self._pieces = pieces
        self._fast = make_sentence_matcher(pieces, do_lower_case=do_lower_case)

    @functools.cached_property
    def _wordpiece(self) -> tf_text.FastWordpieceTokenizer:
        """Made when a text takes the exact way, or a graph that may have such texts is traced."""
        with tf.init_scope():
            return make_word_matcher(self._pieces)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of texts, string [B] -> int32 ragged [B, pieces]."""
        ids, settled = self.fast(texts)
        return tf.cond(
            tf.reduce_all(settled),
            lambda: ids,
            lambda: _complete(texts, [ids], settled, lambda rest: [self.exact(rest)])[0],
        )

    def fast(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The ids of texts, string [B], by the fast way: int32 ragged [B, pieces].

        The second result, bool [B], is false for texts that need the exact way.
        """
        eligible = tf.strings.regex_full_match(texts, self._fast_text)
        ids = self._fast.tokenize(tf.where(eligible, texts, ""))
        # A text with an [UNK] always takes the exact way. After an unknown word the fast tokenizer
        # turns a second blank into another [UNK] or loses the next word (tensorflow-text 2.20);
        # and it limits words by bytes, not characters.
        unknown = ids.values == self._unknown_id
        return ids, eligible & ~_any_in_row(unknown, ids)

    def exact(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of any texts, string [B] -> int32 ragged [B, pieces]."""
        words = self._words(Characters.of(tf.strings.unicode_decode(texts, "UTF-8")))
        pieces = self._wordpiece.tokenize(words.texts)
        return tf.RaggedTensor.from_value_rowids(
            pieces.values,
            tf.gather(words.rows, pieces.value_rowids()),
            nrows=tf.size(texts, tf.int64),
            validate=False,
        )

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """The ids of texts, string [B], with the characters that each piece came from."""
        # The fast way counts bytes, which are characters in ASCII.
        ascii_alone = tf.strings.regex_full_match(texts, _ASCII_TEXT)
        ids, *bounds = self._fast.tokenize_with_offsets(tf.where(ascii_alone, texts, ""))
        fast = Pieces(ids, *(part.with_values(tf.cast(part.values, tf.int32)) for part in bounds))
        settled = ascii_alone & ~_any_in_row(ids.values == self._unknown_id, ids)
        pieces: Pieces = tf.cond(
            tf.reduce_all(settled),
            lambda: fast,
            lambda: Pieces(*_complete(texts, fast, settled, self.exact_pieces)),
        )
        return pieces

    def exact_pieces(self, texts: tf.Tensor) -> Pieces:
        """The same for any texts, in several times the time."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        words = self._words(Characters.of(decoded))
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
        words: Words,
        word: tf.Tensor,
        ids: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """First and last character of each piece, indices into `words.characters`, int64 [P] each.

        `word` is the word of each, int64 [P]; `ids` int32 ragged [W, pieces]; `starts` and `ends`
        are its first byte in the word and one past its last, int64 ragged [W, pieces].
        """
        codes = words.characters.codes
        count = tf.size(codes, tf.int64)
        widths = 1 + sum(tf.cast(codes >= bound, tf.int32) for bound in (0x80, 0x800, 0x10000))
        character_at_byte = tf.repeat(tf.range(count), widths)
        byte_starts = tf.cumsum(tf.cast(widths, tf.int64), exclusive=True)
        word_byte = tf.gather(tf.gather(byte_starts, words.starts), word)
        word_ends = tf.concat([words.starts[1:], count[None]], axis=0)
        # An [UNK] covers its whole word. Its offsets cannot be used: where the word was too long,
        # they are the offsets of the text "[UNK]".
        unknown = ids.values == self._unknown_id
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
        """int32 [C]: one past each decoded character and the accents stripped after it."""
        count = tf.size(decoded.values)
        if not self._strips:
            return tf.range(1, count + 1)
        kept = ~has(look_up(unicode_tables.table("properties"), decoded.values), MARK)
        positions = tf.cast(tf.where(kept)[:, 0], tf.int32)
        following = tf.concat([positions[1:], count[None]], axis=0)
        rank = tf.cumsum(tf.cast(kept, tf.int32)) - 1
        # Accents at the beginning of a text have no character before them; their ends are not used.
        next_kept = tf.gather(tf.concat([count[None], following], axis=0), rank + 1)
        text_end = tf.gather(tf.cast(decoded.row_limits(), tf.int32), decoded.value_rowids())
        return tf.minimum(next_kept, text_end)


def _complete(
    texts: tf.Tensor,
    parts: Iterable[tf.RaggedTensor],
    settled: tf.Tensor,
    exact: Callable[[tf.Tensor], Iterable[tf.RaggedTensor]],
) -> list[tf.RaggedTensor]:
    """Keeps the rows where `settled`, bool [B], holds; `exact` makes the others.

    Each part is ragged [B, pieces].
    """
    others = tf.where(~settled)[:, 0]
    count = tf.size(texts, tf.int64)
    nth_other = tf.cumsum(tf.cast(~settled, tf.int64)) - 1
    source = tf.where(settled, tf.range(count), count + nth_other)
    made = exact(tf.gather(texts, others))
    return [
        tf.gather(tf.concat([part, more], axis=0), source)
        for part, more in zip(parts, made, strict=True)
    ]


def _any_in_row(mask: tf.Tensor, rows: tf.RaggedTensor) -> tf.Tensor:
    """Whether `mask`, one for each value of `rows`, holds anywhere in a row: bool [B]."""
    counts = tf.pad(tf.cumsum(tf.cast(mask, tf.int32)), [[1, 0]])
    split_counts = tf.gather(counts, rows.row_splits)
    return split_counts[1:] > split_counts[:-1]


def make_sentence_matcher(
    pieces: Sequence[str], *, do_lower_case: bool
) -> tf_text.FastBertTokenizer:
    """Makes the matcher that normalises texts and splits them into words by itself."""
    normalizer = _model(
        "normalizer",
        [do_lower_case],
        lambda: normalizers.build_fast_bert_normalizer_model(do_lower_case),
    )
    return tf_text.FastBertTokenizer(
        token_out_type=tf.int32,
        fast_wordpiece_model_buffer=_matcher(pieces, MAX_CHARS_PER_WORD, are_words=False),
        fast_bert_normalizer_model_buffer=normalizer,
    )


def make_word_matcher(pieces: Sequence[str]) -> tf_text.FastWordpieceTokenizer:
    """Makes the matcher that takes words, of at most `MAX_CHARS_PER_WORD` characters."""
    max_bytes = MAX_CHARS_PER_WORD * _MAX_UTF8_BYTES
    return tf_text.FastWordpieceTokenizer(
        token_out_type=tf.int32, model_buffer=_matcher(pieces, max_bytes, are_words=True)
    )


def _matcher(pieces: Sequence[str], max_bytes_per_word: int, *, are_words: bool) -> tf.Tensor:
    """The model of a matcher of texts or of words, uint8; longer words become [UNK]."""
    detokenizes = False
    options = (max_bytes_per_word, _SUFFIX_INDICATOR, UNK, are_words, detokenizes)
    return _model(
        "wordpiece",
        [list(pieces), *options],
        lambda: matchers.build_fast_wordpiece_model(list(pieces), *options),
    )


def _model(kind: str, arguments: Sequence[object], build: Callable[[], bytes]) -> tf.Tensor:
    """A model as uint8 [bytes], from the cache: it depends on the pieces alone.

    To build it takes half a second, to read it some milliseconds. From bytes, tensorflow-text would
    make a list of int first.
    """
    sources = (part.encode() for part in (kind, tf_text.__version__, json.dumps(arguments)))
    model = np.frombuffer(from_cache("tokenizers", sources, build), np.uint8)
    with tf.device("CPU:0"):  # where the operations run that take it
        return tf.constant(model)
