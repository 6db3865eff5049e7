"""Marks of single cases of a test."""

from typing import Any

import pytest


def of_release(*values: Any) -> Any:
    """Values of `parametrize` that only scripts/test.sh --all tries; others are like them."""
    return pytest.param(*values, marks=[pytest.mark.slow, pytest.mark.release])
