"""The matchers of tensorflow-text, whose models are kept in the cache.

A model depends on the pieces alone. To build it takes half a second, to read it some milliseconds.
"""

import json
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import pywrap_fast_bert_normalizer_model_builder as normalizers
from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder as matchers

from bert_features.files import from_cache
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, UNK

_SUFFIX_INDICATOR = "##"
_MAX_UTF8_BYTES = 4  # of a character


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
    """A model as uint8 [bytes]. From bytes, tensorflow-text would make a list of int first."""
    sources = (part.encode() for part in (kind, tf_text.__version__, json.dumps(arguments)))
    model = np.frombuffer(from_cache("tokenizers", sources, build), np.uint8)
    with tf.device("CPU:0"):  # where the operations run that take it
        return tf.constant(model)
