"""Checkpoints of a toy, made once for all modules of the room; and a server of files."""

import shutil

import pytest

from tests.reference.file_server import FileServer
from tests.reference.tf1_checkpoint import write_directory
from tests.reference.tf2_checkpoint import garden_tensors, write_saved_model
from tests.toy import TOY, TOY_VOCAB, random_weights

WEIGHTS = random_weights(TOY)


@pytest.fixture(scope="session")
def tf1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tf1")
    return write_directory(folder, TOY, TOY_VOCAB, WEIGHTS, kind="tf1")


@pytest.fixture(scope="session")
def safetensors(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("st"), TOY, TOY_VOCAB, WEIGHTS)


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """A module of TF-Hub, uncased."""
    tensors = garden_tensors(WEIGHTS, TOY.num_attention_heads)
    folder = tmp_path_factory.mktemp("hub") / "3"
    return write_saved_model(folder, tensors, vocab=TOY_VOCAB, do_lower_case=True)


@pytest.fixture
def copy(safetensors, tmp_path):
    """A safetensors directory that a test may spoil."""
    return shutil.copytree(safetensors, tmp_path / "copy")


@pytest.fixture
def file_server(monkeypatch):
    """A web server without files."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FileServer() as running:
        yield running
