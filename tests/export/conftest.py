"""A toy checkpoint, with and without a pooler, and its exports."""

import pytest

from bert_features import export_savedmodel
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

MEAN = {"name": "mean", "level": "sequence", "layers": [-1], "special_tokens": False}
LAST = {"name": "last", "layers": [-1]}


@pytest.fixture(scope="session")
def weights():
    return random_weights(TOY)


@pytest.fixture
def no_pooler(tmp_path, weights):
    bare = {n: w for n, w in weights.items() if not n.startswith("pooler")}
    return write_directory(tmp_path / "uncased_bare", TOY, TOY_VOCAB, bare, kind="tf1")


@pytest.fixture(scope="session")
def toy_text(tmp_path_factory, toy):
    """With the form of GELU that the checkpoint does not have by default."""
    to = tmp_path_factory.mktemp("export") / "text"
    settings = {"outputs": [MEAN, LAST], "max_seq_length": 12, "hidden_act": "gelu_erf"}
    return export_savedmodel(to, checkpoint=toy, **settings)


@pytest.fixture(scope="session")
def toy_ids(tmp_path_factory, toy):
    to = tmp_path_factory.mktemp("export") / "ids"
    return export_savedmodel(to, signature="ids", checkpoint=toy, outputs=[MEAN])


@pytest.fixture(scope="session")
def batch():
    return random_batch(TOY, [9, 4, 1], 9)
