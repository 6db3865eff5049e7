"""Deviations and cosines by hand, and what is allowed."""

import numpy as np
import pytest

from bert_features.verify.comparison import TOLERANCES, Comparison


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_allowed(precision):
    tolerance = TOLERANCES[precision]
    limit = {"float32": 1e-5, "bfloat16": 0.999}[precision]
    worse = {"float32": 1.1e-5, "bfloat16": 0.9989}[precision]
    assert tolerance.allows(limit)
    assert not tolerance.allows(worse)
    assert not tolerance.allows(float("nan"))


def test_a_deviation_is_divided_by_what_is_above_one():
    expected, received = np.array([[[4.0, 0.5]]]), np.array([[[4.0, 0.75]]])
    assert Comparison("x", [expected], [received]).measure("deviation") == 0.25
    assert Comparison("x", [expected], [received], "vector").measure("deviation") == 0.0625


def test_the_lowest_cosine_counts():
    expected, received = np.array([[[1.0, 0.0], [3.0, 4.0]]]), np.array([[[2.0, 0.0], [4.0, 3.0]]])
    assert Comparison("x", [expected], [received]).measure("cosine") == pytest.approx(0.96)


def test_other_shapes_cannot_be_compared():
    with pytest.raises(ValueError, match=r"expected states \(1, 2, 3\), received \(1, 2, 4\)"):
        Comparison("x", [np.zeros((1, 2, 3))], [np.zeros((1, 2, 4))]).measure("cosine")
