"""compute_similarity: values that can be checked by hand, and what is refused."""

import numpy as np
import pytest

from bert_features.errors import ConfigError
from bert_features.extraction.encoding import Padded
from bert_features.extraction.similarity import compute_similarity

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": A, "function": "euclidean"}, "function is 'euclidean'; allowed: 'cosine', 'dot'"),
        ({"a": np.zeros((2, 9), np.uint8)}, "a is uint8, the codes of .*; pass floats"),
        ({"a": ["one text"]}, "a has values of dtype <U8; pass vectors, as encode gives them"),
        ({"a": np.zeros((2, 3, 4))}, r"a has shape \[2, 3, 4\]; allowed"),
        ({"a": A, "b": [[1.0, 2.0, 3.0]]}, "of a have 2 values and the vectors of b 3"),
        ({"a": A, "b": Padded(np.zeros((2, 3, 4)), np.ones((2, 3)))}, r"b is Padded\(values=float"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        compute_similarity(**arguments)
