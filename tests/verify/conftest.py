"""Checks without the other runtime."""

import pytest

from bert_features.verify import other_runtime


@pytest.fixture
def alone(monkeypatch):
    """No other runtime: its process takes seconds."""
    monkeypatch.setattr(
        other_runtime, "unavailable_reason", lambda runtime: f"{runtime} is left out"
    )
