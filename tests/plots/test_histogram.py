"""Histograms: the vectors of the right token; tokens that are not there."""

import numpy as np
import pytest

from bert_features.plots.histogram import token_histogram
from tests.toy import TOY_LAYERS

TEXT = "is this jacksonville ? is it"


@pytest.mark.parametrize(("token", "occurrence", "position"), [("##son", 1, 4), ("IS", 2, 7)])
def test_the_values_are_those_of_the_token(settings, states, passes, token, occurrence, position):
    found = token_histogram(settings, TEXT, token, occurrence=occurrence)
    assert passes == [1]
    assert (found.position, found.layers) == (position, TOY_LAYERS)
    assert found.caption.endswith(", all layers")
    _, values = states(TEXT)
    for layer, of_layer in zip(TOY_LAYERS, found.values, strict=True):
        np.testing.assert_allclose(of_layer, values[layer][position], atol=2e-5)


def test_each_layer_has_every_value_in_the_same_bins(settings):
    found = token_histogram(settings, TEXT, "this", layer=1)
    assert found.layer == 1
    bars = found.data()["bars"]
    for layer in range(len(TOY_LAYERS)):
        own = [bar for bar in bars if bar["layer"] == layer]
        assert sum(bar["count"] for bar in own) == 8
        assert own[0]["start"] == pytest.approx(found.values.min())
        assert own[-1]["end"] == pytest.approx(found.values.max())
