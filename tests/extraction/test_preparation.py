"""Preparation: the settings of a run, resolved."""

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import preparation as preparation_module
from bert_features.extraction.preparation import Preparation


@pytest.mark.parametrize(("cores", "tokens"), [(1, 512), (2, 512), (4, 1024), (64, 2048)])
def test_a_batch_on_a_cpu_has_256_tokens_for_each_core(toy, monkeypatch, cores, tokens):
    """512 to 2,048 in all, and two rows; unless the settings give another number."""
    monkeypatch.setattr(preparation_module, "cores", lambda: cores)
    settings = {"checkpoint": toy, "layers": (-1,)}
    preparation = Preparation(ExtractConfig.of(settings))
    params = preparation.batch_params()
    assert (params["batch_tokens"], params["min_rows"]) == (tokens, 2)
    assert "min_rows" not in preparation.batch_params(few=True)
    params = Preparation(ExtractConfig.of({**settings, "batch_tokens": 70})).batch_params()
    assert params["batch_tokens"] == 70
    assert "min_rows" not in params
