"""The matchers' models: those from the cache give the ids of those that were built."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from bert_features.text import unicode_tables, wordpiece
from bert_features.text.tokenization import FullTokenizer
from tests.toy import SPECIAL

PIECES = [*SPECIAL, "un", "##aff", "##able", "is", ",", "É", "e"]
# The first two take the fast way, the others the exact one.
TEXTS = ["unaffable, is", "É is", "is unknown", "e\u0301 … is", "un日is", ""]


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def builds(monkeypatch):
    """The arguments of each model that is built."""
    calls = []

    def count(module, name):
        original = getattr(module, name)

        def build(*arguments):
            calls.append(arguments)
            return original(*arguments)

        monkeypatch.setattr(module, name, build)

    count(wordpiece.matchers, "build_fast_wordpiece_model")
    count(wordpiece.normalizers, "build_fast_bert_normalizer_model")
    return calls


def ids_of(pieces=PIECES, lower=True):
    return FullTokenizer(pieces, do_lower_case=lower).encode_ids(TEXTS)


def files(cache):
    return sorted(path for path in (cache / "tokenizers").iterdir() if path.is_file())


@pytest.mark.parametrize("lower", [True, False])
def test_models_of_the_cache_give_the_same_ids(cache, builds, lower):
    built = ids_of(lower=lower)
    assert len(builds) == len(files(cache)) == 3
    assert ids_of(lower=lower) == built
    assert len(builds) == 3


def test_they_are_the_models_that_tensorflow_text_makes_by_default(cache):
    """Its own constructors build them from the same pieces."""
    texts = tf.constant(["unaffable, is", "É IS", "xx is"])
    theirs = tf_text.FastBertTokenizer(
        PIECES, max_bytes_per_word=200, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )
    ours = wordpiece.make_sentence_matcher(PIECES, do_lower_case=True)
    assert ours.tokenize(texts).to_list() == theirs.tokenize(texts).to_list()
    words = tf.constant(["unaffable", "is", "x" * 801, "É"])
    theirs = tf_text.FastWordpieceTokenizer(
        PIECES, max_bytes_per_word=800, token_out_type=tf.int32, no_pretokenization=True
    )
    ours = wordpiece.make_word_matcher(PIECES)
    assert ours.tokenize(words).to_list() == theirs.tokenize(words).to_list()


def test_a_model_is_that_of_its_vocabulary_casing_and_version(cache, builds, monkeypatch):
    ids_of()
    ids_of(lower=False)  # another normaliser, the same pieces
    assert len(builds) == 4
    swapped = [*PIECES[:-2], "e", "É"]
    assert ids_of(swapped) != ids_of()
    assert len(builds) == 6
    monkeypatch.setattr(tf_text, "__version__", "0.0.0")
    ids_of()
    assert len(builds) == 9


@pytest.fixture
def no_tables():
    """Forgets the Unicode tables of this process, before and after."""

    def forget():
        for name in ("table", "decompositions", "_arrays"):
            getattr(unicode_tables, name).cache_clear()

    forget()
    yield
    forget()


def test_unicode_tables_of_the_cache_are_those_that_were_made(cache, no_tables, monkeypatch):
    made = unicode_tables._arrays()
    assert len(list((cache / "unicode").iterdir())) == 1
    unicode_tables._arrays.cache_clear()
    monkeypatch.setattr(unicode_tables, "_make_arrays", lambda: pytest.fail("made again"))
    read = unicode_tables._arrays()
    assert list(read) == list(made)
    for name, array in made.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    assert unicode_tables.table("combining_classes").values.max() > 0
