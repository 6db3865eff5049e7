"""Fixtures of the command line's tests: a toy checkpoint, a text, a folder for outputs."""

import pytest

from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The directory of a toy checkpoint; it records no casing."""
    folder = tmp_path_factory.mktemp("toy")
    return str(write_directory(folder, TOY, TOY_VOCAB, random_weights(TOY), kind="tf1"))


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
