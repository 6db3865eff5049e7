"""Fixtures of the tests of runs into folders."""

import pytest

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from tests.corpus import quick as quick_model
from tests.corpus.runs import EXAMPLES, MANY, config_of, shards_of

TEXTS = ["a b", "the jacksonville is not", "", "a b ||| the is", "it is", "no", "this is jack ?"]


@pytest.fixture(autouse=True)
def _kept_steps(kept_steps):
    """Of all tests of runs."""


@pytest.fixture
def config(toy):
    def make(**settings):
        fixed = {"checkpoint": toy, "do_lower_case": True, "shard_examples": 6, "layers": (-1, -2)}
        return ExtractConfig.of({**fixed, "max_seq_length": 8, "batch_size": 4, **settings})

    return make


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{TEXTS[i % len(TEXTS)]}\n" for i in range(EXAMPLES)))
    return path


@pytest.fixture
def quick(monkeypatch):
    """Runs have a model that computes nothing, also in their processes."""
    quick_model.install(monkeypatch.setattr)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """An input that takes a while; see `tests.corpus.runs`."""
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text("a b\nthe jacksonville is not\n\nit is\n" * (MANY // 4))
    return path


@pytest.fixture(scope="module")
def whole(toy, many, tmp_path_factory):
    """The shards of a quick run of it, of one process that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        quick_model.install(patch.setattr)
        extract(config_of(toy), many, f"{out}/")
    return shards_of(out)
