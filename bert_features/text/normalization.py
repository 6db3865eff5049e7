"""The official BasicTokenizer as a TensorFlow graph: clean, lower, strip accents, split into words.

It works on the characters of a whole batch at once, code point by code point, with the tables of
`unicode_tables`.

Shape legend: `B` texts, `C` characters of the whole batch, `W` words.
"""

from typing import NamedTuple

import tensorflow as tf

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
    Decompositions,
    TwoStageTable,
)
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, UNK


class Characters(NamedTuple):
    """The characters of a batch of texts, one text after the other.

    Attributes:
      codes: int32 [C], code points.
      rows: int64 [C], the text that each belongs to.
      origins: int32 [C], the character of the decoded batch that each came from.
    """

    codes: tf.Tensor
    rows: tf.Tensor
    origins: tf.Tensor

    @classmethod
    def of(cls, decoded: tf.RaggedTensor) -> "Characters":
        """The characters of texts decoded to code points, int32 ragged [B, characters]."""
        return cls(
            codes=decoded.values,
            rows=decoded.value_rowids(),
            origins=tf.range(tf.size(decoded.values)),
        )

    def keep(self, mask: tf.Tensor) -> "Characters":
        """The characters where `mask` holds."""
        return self.take(tf.where(mask)[:, 0])

    def take(self, indices: tf.Tensor) -> "Characters":
        """The characters at `indices`."""
        return Characters(*(tf.gather(part, indices) for part in self))


class Words(NamedTuple):
    """The words of a batch after normalisation.

    Attributes:
      characters: the characters of all words; blanks and dropped characters are gone.
      starts: int64 [W], where each word begins in `characters`.
      texts: string [W], UTF-8; `[UNK]` for a word of more than `MAX_CHARS_PER_WORD` characters.
      rows: int64 [W], the text that each belongs to.
    """

    characters: Characters
    starts: tf.Tensor
    texts: tf.Tensor
    rows: tf.Tensor


def find_words(
    characters: Characters,
    *,
    do_lower_case: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Words:
    """Normalises texts and splits them into words, as the official BasicTokenizer does.

    It strips accents where it lower-cases, and each Chinese character is a word; the last two
    arguments are Hugging Face's switches for these, where None follows `do_lower_case`.
    """
    properties = unicode_tables.table("properties")
    characters = characters.keep(~has(look_up(properties, characters.codes), DROPPED))
    isolated = has(look_up(properties, characters.codes), CHINESE if tokenize_chinese_chars else 0)
    strip = do_lower_case if strip_accents is None else strip_accents
    if do_lower_case or strip:
        characters, isolated = _lower_or_strip(characters, isolated, do_lower_case, strip)
    bits = look_up(properties, characters.codes)
    isolated |= has(bits, PUNCTUATION)
    return _split(characters, space=has(bits, SPACE), isolated=isolated)


def look_up(table: TwoStageTable, codes: tf.Tensor) -> tf.Tensor:
    """The property of each code point, int32 [C] -> [C] of the table's dtype."""
    page = tf.gather(table.pages, tf.bitwise.right_shift(codes, PAGE_BITS))
    offset = tf.bitwise.bitwise_and(codes, (1 << PAGE_BITS) - 1)
    return tf.gather(table.values, page + offset)


def has(bits: tf.Tensor, mask: int) -> tf.Tensor:
    """Whether any bit of `mask` is set, uint8 [C] -> bool [C]."""
    return tf.bitwise.bitwise_and(bits, tf.constant(mask, tf.uint8)) != 0


def _starts_text(rows: tf.Tensor) -> tf.Tensor:
    """Bool [C]: whether a text begins here."""
    return tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)


def _lower_or_strip(
    characters: Characters, ideograph: tf.Tensor, lower: bool, strip: bool
) -> tuple[Characters, tf.Tensor]:
    """Does str.lower(), if `lower`; then NFD and drops non-spacing marks, if `strip`.

    `ideograph` is bool [C].
    """
    if lower:
        characters = with_final_sigmas(characters)
    tables = unicode_tables.decompositions(("lower" if lower else "cased") if strip else "accented")
    characters, source = decompose(characters, tables)
    ideograph = tf.gather(ideograph, source)
    if not strip:
        return characters, ideograph
    bits = look_up(unicode_tables.table("properties"), characters.codes)
    order = tf.cond(
        tf.reduce_any(has(bits, REORDERED)),
        lambda: _canonical_order(characters),
        lambda: tf.range(tf.size(characters.codes)),
    )
    kept = tf.boolean_mask(order, ~has(tf.gather(bits, order), MARK))
    return characters.take(kept), tf.gather(ideograph, kept)


def decompose(characters: Characters, tables: Decompositions) -> tuple[Characters, tf.Tensor]:
    """Decomposes every character; also gives the index that each new one came from, int32."""
    codes = characters.codes
    lengths = look_up(tables.lengths, codes)
    first = codes + look_up(tables.deltas, codes)

    def expand() -> tuple[tf.Tensor, tf.Tensor]:
        source = tf.repeat(tf.range(tf.size(codes)), lengths)
        nth = tf.range(tf.size(source)) - tf.gather(tf.cumsum(lengths, exclusive=True), source)
        tail = tf.gather(look_up(tables.tail_starts, codes), source) + nth - 1
        rest = tf.gather(tables.tails, tf.clip_by_value(tail, 0, len(tables.tails) - 1))
        return source, tf.where(nth == 0, tf.gather(first, source), rest)

    source, decomposed = tf.cond(
        tf.reduce_all(lengths == 1), lambda: (tf.range(tf.size(codes)), first), expand
    )
    return characters.take(source)._replace(codes=decomposed), source


def _canonical_order(characters: Characters) -> tf.Tensor:
    """Indices that bring marks into Unicode's canonical order (UAX 15), int32 [C].

    Marks are sorted by combining class. A starter (class 0) opens a run and sorts first in it,
    so one stable sort is enough.
    """
    classes = tf.cast(
        look_up(unicode_tables.table("combining_classes"), characters.codes), tf.int64
    )
    starts = (classes == 0) | _starts_text(characters.rows)
    runs = tf.cumsum(tf.cast(starts, tf.int64))
    return tf.argsort(runs * 256 + classes, stable=True)


def with_final_sigmas(characters: Characters) -> Characters:
    """The characters with each capital sigma at the end of a word final, as by str.lower()."""
    codes = tf.cond(
        tf.reduce_any(characters.codes == CAPITAL_SIGMA),
        lambda: _final_sigmas(characters),
        lambda: characters.codes,
    )
    return characters._replace(codes=codes)


def _final_sigmas(characters: Characters) -> tf.Tensor:
    """The code points with final sigmas, int32 [C].

    A sigma is final if the nearest letter before it is cased and the nearest after it is not;
    case-ignorable characters in between do not count (Unicode's Final_Sigma condition). Blanks and
    ideographs are neither cased nor ignorable, so words end by themselves. Texts do not: hence the
    comparison of rows.
    """
    codes, rows, _ = characters
    bits = look_up(unicode_tables.table("properties"), codes)
    relevant = tf.where(~has(bits, CASE_IGNORABLE))[:, 0]
    cased = has(tf.gather(bits, relevant), CASED)
    row = tf.gather(rows, relevant)
    same_row = row[1:] == row[:-1]
    no = tf.zeros([1], tf.bool)
    cased_before = tf.concat([no, cased[:-1] & same_row], axis=0)
    cased_after = tf.concat([cased[1:] & same_row, no], axis=0)
    is_sigma = tf.gather(codes, relevant) == CAPITAL_SIGMA
    final = tf.boolean_mask(relevant, is_sigma & cased_before & ~cased_after)
    return tf.tensor_scatter_nd_update(codes, final[:, None], tf.fill(tf.shape(final), FINAL_SIGMA))


def _split(characters: Characters, *, space: tf.Tensor, isolated: tf.Tensor) -> Words:
    """Splits texts at blanks (`space`, bool [C]) and around isolated characters (bool [C])."""
    after_break = _starts_text(characters.rows) | tf.concat(
        [tf.ones_like(space[:1]), (space | isolated)[:-1]], axis=0
    )
    visible = tf.where(~space)[:, 0]
    starts = tf.where(tf.gather(after_break | isolated, visible))[:, 0]
    characters = characters.take(visible)
    ragged = tf.RaggedTensor.from_row_starts(characters.codes, starts, validate=False)
    texts = tf.strings.unicode_encode(ragged, "UTF-8")
    texts = tf.where(ragged.row_lengths() > MAX_CHARS_PER_WORD, UNK, texts)
    return Words(characters, starts, texts, rows=tf.gather(characters.rows, starts))
