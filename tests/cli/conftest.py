"""Fixtures of the command line's tests: a text, a folder for outputs."""

import pytest


@pytest.fixture
def text(tmp_path):
    """A file of three examples: a pair, an empty line and a line."""
    path = tmp_path / "in.txt"
    path.write_text("is this jacksonville ? ||| no it is not .\n\nthe a b\n")
    return path


@pytest.fixture
def out(tmp_path):
    """Where outputs go: a folder of their own, so that leftovers show."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _kept_steps(kept_steps):
    """Commands that run in this process share steps."""
