"""Extractors of this room share steps."""

import pytest


@pytest.fixture(autouse=True)
def _kept_steps(kept_steps):
    """For all tests but those that change how a step is traced; these are marked `own_steps`."""
