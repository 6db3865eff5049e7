"""What ALBERT does to a text before SentencePiece, as a TensorFlow graph.

That is `preprocess_text` of google-research/albert's tokenization.py: single blanks between words,
compatibility decomposition (NFKD) without combining marks, unless accents are kept; lower case.

Shape legend: `B` texts, `C` characters of the whole batch.
"""

import tensorflow as tf

from bert_features.text import unicode_tables
from bert_features.text.normalization import Characters, decompose, look_up, with_final_sigmas


def prepare(
    decoded: tf.RaggedTensor, *, do_lower_case: bool, keep_accents: bool = False
) -> Characters:
    """The characters that SentencePiece gets of texts, int32 ragged [B, characters]."""
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
