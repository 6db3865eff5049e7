"""Fixtures of the tests of runs into folders."""

import pytest

from bert_features.config.extract_config import ExtractConfig

TEXTS = ["a b", "the jacksonville is not", "", "a b ||| the is", "it is", "no", "this is jack ?"]
EXAMPLES = 20


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
