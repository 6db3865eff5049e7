"""Deviations and cosines by hand, and what is allowed."""

import numpy as np
import pytest

from bert_features.check.tolerances import BETWEEN_PROGRAMS, TOLERANCES, Comparison, deviation


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_allowed(precision):
    tolerance = TOLERANCES[precision]
    limit = {"float32": 1e-5, "bfloat16": 0.999}[precision]
    worse = {"float32": 1.1e-5, "bfloat16": 0.9989}[precision]
    assert tolerance.allows(limit)
    assert not tolerance.allows(worse)
    assert not tolerance.allows(float("nan"))


def test_a_difference_may_grow_with_the_largest_of_its_vector():
    expected, received = np.array([[[4.0, 0.5]]]), np.array([[[4.0, 0.75]]])
    # 0.25 / (1 + 0.2 * 4) and 0.25 / (1 + 1 * 4)
    assert Comparison("x", [expected], [received]).measure("deviation") == pytest.approx(0.25 / 1.8)
    between = Comparison("x", [expected], [received], BETWEEN_PROGRAMS)
    assert between.measure("deviation") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("vector", "difference", "agrees"),
    [
        ([0.5, 0.5], 1.0e-5, True),
        ([0.5, 0.5], 1.2e-5, False),
        # As seen in sums of four layers and in sqrt_len_mean.
        ([82.0, 14.0], 1.14e-5, True),
        ([17.3, 3.9], 2.32e-5, True),
        # An error of one in a hundred thousand is none of rounding.
        ([17.3, 3.9], 1.73e-4, False),
        ([82.0, 14.0], float("nan"), False),
    ],
)
def test_what_agrees_in_float32(vector, difference, agrees):
    expected = np.array([vector])
    assert TOLERANCES["float32"].allows(deviation(expected, expected + difference)) is agrees


def test_the_lowest_cosine_counts():
    expected, received = np.array([[[1.0, 0.0], [3.0, 4.0]]]), np.array([[[2.0, 0.0], [4.0, 3.0]]])
    assert Comparison("x", [expected], [received]).measure("cosine") == pytest.approx(0.96)


def test_other_shapes_cannot_be_compared():
    with pytest.raises(ValueError, match=r"received \(1, 2, 4\)"):
        Comparison("x", [np.zeros((1, 2, 3))], [np.zeros((1, 2, 4))]).measure("cosine")
