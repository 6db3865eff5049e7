"""Attention as a figure: the values of the drawing, which heads it shows, what is refused."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import vl_convert

from bert_features.errors import InputError
from bert_features.plots.attention import show_attention
from bert_features.plots.charts import _specification
from tests.reference import numpy_outputs
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB, random_weights

A, B = "is this jacksonville ?", "no it is ."
# Of A: "jacksonville" is three pieces.
PIECES, WORDS = [[1], [2], [3, 4, 5], [6]], ("is", "this", "jacksonville", "?")


@pytest.fixture(scope="module")
def expected():
    """A function: the tokens of a text or a pair, and the attention of each layer, float64."""
    encoder = NumpyEncoder(TOY, random_weights(TOY))
    tokenizer = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)

    def compute(*texts):
        parts = [[*tokenizer.tokenize(text), "[SEP]"] for text in texts]
        types = [0] + [i for i, part in enumerate(parts) for _ in part]
        tokens = ["[CLS]", *(token for part in parts for token in part)]
        ids = np.array([[tokenizer.vocab[token] for token in tokens]])
        encoder(ids, np.ones_like(ids), np.array([types]))
        return tuple(tokens), [of_layer[0] for of_layer in encoder.attention_of]

    return compute


def values(chart):
    """The values of the drawing's cells, by layer and head: [layers, heads, S, S]."""
    size, cells = len(chart.labels), chart.data()["cells"]
    assert [(c["row"], c["column"]) for c in cells] == [
        (i, j) for i in range(size) for j in range(size)
    ]
    found = np.array([c["cosines"] for c in cells]).T
    return found.reshape(len(chart.weights), len(chart.heads), size, size)


def near(wanted):
    return pytest.approx(np.stack(wanted), abs=6e-5)  # four decimals are drawn


def shown(chart, *, interactive, **parameters):
    """The texts of a drawing, its parameters set to some values."""
    specification = json.loads(_specification(chart, interactive=interactive))
    for parameter in specification["params"]:
        parameter["value"] = parameters.get(parameter["name"], parameter["value"])
    svg = vl_convert.vegalite_to_svg(specification)
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter() if "text" in node.tag]


@pytest.mark.slow
@pytest.mark.parametrize("texts", [(A,), (A, B)])
def test_every_head_of_every_layer_by_default(settings, expected, passes, texts):
    chart = show_attention(settings, texts if len(texts) == 2 else A)
    assert passes == [1]
    tokens, weights = expected(*texts)
    assert chart.labels == tokens
    assert values(chart) == near(weights)
    assert tuple(chart.weights) == (0, 1, 2)
    assert chart.text == " ||| ".join(texts)
    texts = shown(chart, interactive=False)
    assert [t for t in texts if "head" in t] == ["layer 2, head 0", "layer 2, head 1"]


def test_chosen_layers_and_heads_alone(settings, expected):
    weights = expected(A)[1]
    chart = show_attention(settings, A, layers=(-1, 0), heads=[1])
    assert values(chart) == near([weights[0][[1]], weights[2][[1]]])
    assert [t for t in shown(chart, interactive=False) if "head" in t] == [
        "layer 0, head 1",
        "layer 2, head 1",
    ]


def test_the_mean_of_the_heads_word_by_word(settings, expected):
    chart = show_attention(settings, A, layers=[1], heads="mean", level="word")
    assert chart.labels == WORDS
    wanted = numpy_outputs.show_attention(expected(A)[1][1], ("mean",), PIECES)
    assert values(chart) == near([wanted])
    texts = shown(chart, interactive=False)
    assert "layer 1, mean of the heads" in texts
    drawn = [text for text in texts if text.startswith("0.") and len(text) == 4]
    assert drawn == [f"{value:.2f}" for value in values(chart).ravel()]


@pytest.mark.slow
def test_the_sliders_of_a_page_choose_the_large_head(settings):
    chart = show_attention(settings, A)
    for layer, head in ((0, 1), (2, 0)):
        texts = shown(chart, interactive=True, layer=layer, head=head)
        assert f"layer {layer}, head {head}" in texts
        drawn = [text for text in texts if text.startswith("0.") and len(text) == 4]
        assert drawn == [f"{value:.2f}" for value in values(chart)[layer, head].ravel()]


def test_too_many_tokens_and_no_words_are_refused(settings, monkeypatch):
    with pytest.raises(InputError, match=r"0 words; .* 1 to 80"):
        show_attention(settings, "", level="word")
    monkeypatch.setattr("bert_features.plots.attention.MAX_ROWS", 7)
    with pytest.raises(InputError, match=r"8 tokens; .* 1 to 7"):
        show_attention(settings, A)
