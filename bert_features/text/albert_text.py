"""What ALBERT does to a text before SentencePiece, as a TensorFlow graph.

That is `preprocess_text` of google-research/albert's tokenization.py: single blanks between words,
compatibility decomposition (NFKD) without combining marks, lower case.

Shape legend: `B` texts, `C` characters of the whole batch.
"""

import tensorflow as tf

from bert_features.text import unicode_tables
from bert_features.text.normalization import Characters, expand, final_sigmas, look_up
from bert_features.text.unicode_tables import CAPITAL_SIGMA


def prepare(decoded: tf.RaggedTensor, *, do_lower_case: bool) -> Characters:
    """The characters that SentencePiece gets, with where each came from.

    Args:
      decoded: the texts, int32 ragged [B, characters].
      do_lower_case: whether to lower-case.
    """
    tables = unicode_tables.plain()
    characters = _single_blanks(Characters.of(decoded), decoded.row_starts())
    codes = characters.codes
    lengths = look_up(tables.lengths, codes)
    first = codes + look_up(tables.deltas, codes)
    # The order of marks, which NFKD also changes, does not matter: they all go.
    source, codes = tf.cond(
        tf.reduce_all(lengths == 1),
        lambda: (tf.range(tf.size(codes)), first),
        lambda: expand(tables, codes, first, lengths),
    )
    characters = characters.take(source)._replace(codes=codes)
    if do_lower_case:
        codes = tf.cond(
            tf.reduce_any(codes == CAPITAL_SIGMA),
            lambda: final_sigmas(characters),
            lambda: characters.codes,
        )
        codes = tf.where(codes == CAPITAL_SIGMA, ord("σ"), codes)
        characters = characters._replace(codes=codes + look_up(unicode_tables.lower_case(), codes))
    return characters


def _single_blanks(characters: Characters, row_starts: tf.Tensor) -> Characters:
    """The characters with one blank between two words, and none around a text."""
    rows = characters.rows
    blank = look_up(unicode_tables.white_space(), characters.codes) != 0
    words = tf.cumsum(tf.cast(~blank, tf.int32), exclusive=True)
    started = words > tf.gather(words, tf.gather(row_starts, rows))
    ends = tf.concat([~blank[1:] & (rows[1:] == rows[:-1]), tf.zeros_like(blank[:1])], axis=0)
    codes = tf.where(blank, ord(" "), characters.codes)
    return characters._replace(codes=codes).keep(~blank | (started & ends))
