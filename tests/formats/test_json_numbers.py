"""Numbers as `json.dumps` writes them."""

import json
from typing import Any

import numpy as np
import pytest

from bert_features.formats.json_numbers import convert_to_text


def official_row(row: np.ndarray) -> str:
    """As `extract_features.py` writes it."""
    return json.dumps([round(float(x), 6) for x in row.flat])


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 3e-5, 1e-3, 0.5, 3.0, 99.0, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numbers_are_rounded_as_python_does(scale: float, dtype: Any) -> None:
    values = np.random.default_rng(5).normal(0, 1, (500, 17)).astype(np.float64)
    values = np.clip(values * scale, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype)
    assert convert_to_text(values) == [official_row(row) for row in values]


def test_numbers_of_every_bit_pattern_of_float16() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values: np.ndarray = patterns[np.isfinite(patterns)].reshape(-1, 1)
    assert convert_to_text(values) == [official_row(row) for row in values]


def test_numbers_at_the_edges() -> None:
    """Ties, whose seventh decimal is an exact 5, the ends of the tables, and float32's own."""
    ties = (np.arange(-700, 700) + 0.5) / 64 * np.float32(2**-1)
    edges = [0.0, -0.0, 1e-7, -1e-7, 5e-7, 1e-6, 9.9e-5, 1e-4, 0.00099999, 0.999, 0.9999999]
    edges += [
        99.9999,
        99.9999999,
        100.0,
        8388607.5,
        3.4028235e38,
        -3.4028235e38,
        1e-45,
        1.1754944e-38,
    ]
    near = np.nextafter(np.array(edges, np.float32), np.float32(1))
    values = np.concatenate([ties, edges, near]).astype(np.float32).reshape(-1, 1)
    assert convert_to_text(values) == [official_row(row) for row in values]
    assert convert_to_text(values.reshape(1, -1)) == [official_row(values)]  # all kinds in one row
