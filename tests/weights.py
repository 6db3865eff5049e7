"""How tests compare weights."""

import numpy as np


def assert_same(left, right):
    """Two dictionaries of weights have the same names, float32 values, and the same bits."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, right[name], err_msg=name)
