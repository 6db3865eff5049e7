"""Preparation: the settings of a run, resolved."""

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import preparation as preparation_module
from bert_features.extraction.preparation import Preparation


@pytest.mark.parametrize(
    ("cores", "length", "tokens"),
    [(1, 20, 512), (2, 20, 512), (4, 20, 1024), (64, 20, 2048), (2, 64, 512), (2, 300, 600)],
)
def test_a_batch_on_a_cpu_has_256_tokens_for_each_core(toy, monkeypatch, cores, length, tokens):
    """512 to 2,048 in all; and it holds two of the longest rows."""
    monkeypatch.setattr(preparation_module, "cores", lambda: cores)
    preparation = Preparation(ExtractConfig.of({"checkpoint": toy, "layers": (-1,)}))
    preparation.max_seq_length = length
    assert preparation.batch_params()["batch_tokens"] == tokens
