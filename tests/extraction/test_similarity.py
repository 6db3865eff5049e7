"""compute_similarity: values that can be checked by hand, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from bert_features.errors import ConfigError
from bert_features.extraction.encoding import Padded, Ragged
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.similarity import compute_similarity
from tests.reference.late_interaction import max_sim

A = [[3.0, 4.0], [0.0, 0.0]]
B = [[4.0, 3.0], [-6.0, -8.0], [0.0, 5.0]]


@pytest.mark.parametrize(
    ("function", "wanted"),
    [("cosine", [[0.96, -1.0, 0.8], [0, 0, 0]]), ("dot", [[24, -50, 20], [0, 0, 0]])],
)
def test_each_with_each(function, wanted):
    similarity = compute_similarity(A, B, function=function)
    assert similarity.dtype == np.float32
    np.testing.assert_allclose(similarity, wanted, atol=1e-6)
    np.testing.assert_array_equal(
        compute_similarity(B, function=function), compute_similarity(B, B, function=function)
    )


def test_a_single_vector_is_a_row():
    assert compute_similarity(A[0], B).shape == (1, 3)
    assert compute_similarity(B, np.float16(A[0])).shape == (3, 1)


def extractor_of(*kinds, function=None):
    """What `similarity` needs of an extractor with outputs of these kinds."""
    made = object.__new__(FeatureExtractor)
    made.outputs = [SimpleNamespace(kind=kind) for kind in kinds]
    late = SimpleNamespace(similarity=function)
    made.checkpoint = SimpleNamespace(sentence_transformers=None, multi_vector=late)
    return made


RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(7, 4)).astype(np.float32)
SPLITS = [[0, 2, 2, 7], [0, 3, 7]]  # the second query has no vectors


def padded(splits):
    lengths = np.diff(splits)
    mask = np.arange(lengths.max()) < lengths[:, None]
    values = np.zeros((*mask.shape, 4), np.float32)
    values[mask] = VECTORS
    return Padded(values, mask)


@pytest.mark.parametrize("function", ["maxsim", "meanmaxsim"])
@pytest.mark.parametrize("form", [padded, lambda splits: Ragged(VECTORS, np.array(splits))])
def test_multi_vectors_are_compared_by_maxsim(form, function):
    extractor = extractor_of("layers", "multi_vector", function=function)
    texts = [np.split(VECTORS, splits[1:-1]) for splits in SPLITS]
    wanted = [[max_sim(query, document) for document in texts[1]] for query in texts[0]]
    if function == "meanmaxsim":
        wanted = np.array(wanted) / np.maximum([[len(query)] for query in texts[0]], 1)
    found = extractor.similarity(*map(form, SPLITS))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    # A document without vectors is similar to nothing.
    turned = extractor.similarity(*map(form, SPLITS[::-1]))
    assert (turned[:, 1] == 0).all()
    assert turned.shape == (2, 3)


def test_an_array_is_a_text_where_all_outputs_are_multi_vectors():
    alone = extractor_of("multi_vector").similarity(VECTORS, Ragged(VECTORS, np.array([0, 3, 7])))
    assert alone.shape == (1, 2)
    assert extractor_of("layers", "multi_vector").similarity(VECTORS).shape == (7, 7)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (VECTORS, csr_matrix(VECTORS), r"of two kinds \(ndarray and csr_matrix\); pass"),
        (VECTORS, padded(SPLITS[0]), "a and b are of two kinds"),
        (csr_matrix(VECTORS), csr_matrix(VECTORS[:, :3]), "of a have 4 values and .* of b 3"),
        (padded(SPLITS[0]), Ragged(VECTORS[:, :3], np.array([0, 7])), "a have 4 values and"),
        (Ragged(VECTORS.astype(np.int8), np.array([0, 7])), None, "is int8, the codes of"),
    ],
)
def test_kinds_and_widths_must_be_the_same(a, b, message):
    with pytest.raises(ConfigError, match=message):
        extractor_of("layers", "multi_vector", "sparse").similarity(a, b)
