"""Charts as files: pictures and pages of every kind; a page holds its data and loads nothing."""

import functools
import html
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import vl_convert

from bert_features.errors import MissingExtraError, OutputError
from bert_features.plots.attention import Attention
from bert_features.plots.charts import check_chart, render_picture, write_chart
from bert_features.plots.cka import LayerSimilarity
from bert_features.plots.histogram import Histogram
from bert_features.plots.labelled import Labelled
from bert_features.plots.scatter import Scatter
from bert_features.plots.similarity import TokenSimilarity
from bert_features.plots.word import Occurrence, WordSimilarity
from bert_features.probe.advice import advise
from bert_features.probe.report import Probe
from bert_features.probe.scores import Mix
from bert_features.readers.input_example import InputExample
from tests.probe.examples import make_score, make_scores

LAYERS = ("embeddings", 0, 1)
EVIL = "</script><img src=x onerror=alert(1)>&<!-- {{title}} {{data}}"
RANDOM = np.random.default_rng(0)


def cosines(rows, columns):
    return {layer: RANDOM.uniform(-0.2, 1, (rows, columns)).astype("f") for layer in LAYERS}


def occurrences(count):
    return [Occurrence(i + 1, f"the bank {i}", 4, 8, "xy"[2 * i // count]) for i in range(count)]


def scatter():
    texts = [InputExample(i, EVIL) for i in range(6)]
    labelled = Labelled("in.csv", texts, ["sport", "money", EVIL] * 2)
    columns = (("mean", "PCA"), ("pooler", "PCA"))
    places = {(layer, "mean", "PCA"): RANDOM.normal(size=(6, 2)) for layer in LAYERS}
    places[1, "pooler", "PCA"] = places[1, "mean", "PCA"]
    return Scatter("toy model", labelled, LAYERS, columns, places)


def probe():
    scores = [
        make_score(layer, pooling, *RANDOM.uniform(0.9, 1, 3))
        for layer in LAYERS
        for pooling in ("mean", "cls")
    ]
    weights = RANDOM.dirichlet([1] * len(LAYERS), 3)
    mix = Mix("mean", "accuracy", scores[0].probe, weights, LAYERS)
    found = make_scores(scores, mix, word_types=0.7)
    return Probe("toy model", {}, {"x": 3, EVIL: 3}, "6 words in 3 texts", found, 3, advise(found))


# Kind -> (the chart, texts that its picture and its page have).
CHARTS = {
    "similarity": (
        TokenSimilarity(
            "toy model", ("[CLS]", EVIL, "cat"), ("a", "##b"), cosines(3, 2), 1, (EVIL, "a b")
        ),
        [
            "a b",
            EVIL[:40],
            "Cosine of each pair of tokens, layer 1",
            "[CLS]",
            "cat",
            "##b",
            "cosine",
        ],
    ),
    "cka": (
        LayerSimilarity(
            ("toy model", "b"), (("0", "1"), ("-1",)), RANDOM.uniform(size=(2, 2, 1)), "7 rows"
        ),
        ["Linear CKA of each pair of layers, 7 rows", "the same rows", "rows permuted"],
    ),
    "word": (
        WordSimilarity("toy model", "bank", occurrences(4), cosines(4, 4), 0),
        [
            "each pair, layer 0",
            "same label (mean of 2 pairs)",
            "other label (mean of 4 pairs)",
            "2 x: the ba",
        ],
    ),
    "many pairs": (
        WordSimilarity("toy model", "bank", occurrences(40), cosines(40, 40), 0),
        ["mean and 80 % of the pairs", "other label (mean of 400 pairs)", "40 y: the bank 39"],
    ),
    "attention": (
        Attention(
            *("toy model", f"a ||| {EVIL}", ("[CLS]", EVIL), ("head 0", "head 5")),
            {layer: np.linspace(0, 1, 8).reshape(2, 2, 2) for layer in (0, 1)},
            (1,),
            "token",
        ),
        ["from each token", "layer 1, head 0", "layer 1, head 5", "[CLS]", "a ||| ", EVIL[:15]],
    ),
    "histogram": (
        Histogram("toy model", EVIL, "bank", 2, LAYERS, RANDOM.normal(size=(3, 8))),
        ["dimensions", "layer 1: mean"],
    ),
    "one layer": (
        Histogram("toy model", "a bank", "bank", 2, LAYERS, RANDOM.normal(size=(3, 8)), 0),
        ["Values of the token “bank”", "position 2 of “a bank”", "layer 0: mean", "in dimension"],
    ),
    "scatter": (scatter(), ["mean, PCA", "pooler, PCA", "layer 1", "sport"]),
    "probe": (
        probe(),
        ["majority", "word types", "control", "recommended", "mix", "label frequencies", "Use "],
    ),
}
EVERY = pytest.mark.parametrize("name", CHARTS)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The file of a chart, written once."""
    folder = tmp_path_factory.mktemp("charts")

    @functools.cache
    def write(name, suffix):
        write_chart(CHARTS[name][0], folder / f"{name}{suffix}", overwrite=False)
        return folder / f"{name}{suffix}"

    return write


def texts_of(svg):
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter() if "text" in node.tag]


def check_texts(name, svg):
    texts = texts_of(svg)
    for label in ["toy model", *CHARTS[name][1]]:
        assert any(label in text for text in texts), label


@pytest.mark.slow
@EVERY
def test_an_svg_has_its_labels_as_texts_and_repeats(written, name):
    svg = written(name, ".svg").read_text(encoding="utf-8")
    check_texts(name, svg)
    again = render_picture(CHARTS[name][0], ".svg").decode()
    assert without_numbers(again) == without_numbers(svg)


def without_numbers(svg):
    """The picture without the numbers of gradients, which a process counts."""
    return re.sub(r"gradient_\d+", "", svg)


def test_a_picture_has_a_panel_for_each_layer(written):
    """A histogram without a layer; a scatter plot says why a panel has no points."""
    texts = texts_of(written("histogram", ".svg").read_bytes())
    assert [text for text in texts if ": mean" in text] == [
        text for layer in ("embeddings", "layer 0", "layer 1") for text in texts if layer in text
    ]
    texts = texts_of(written("scatter", ".svg").read_bytes())
    assert texts.count("last layer only") == 2
    assert {"embeddings", "layer 0", "layer 1"} < set(texts)


@pytest.mark.slow
@EVERY
def test_a_page_is_drawn_from_its_data_and_loads_nothing(written, name):
    page = written(name, ".html").read_text(encoding="utf-8")
    check_texts(name, vl_convert.vegalite_to_svg(read_data(page)))
    assert "default-src 'none'" in page
    markup = re.sub("<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"\b(?:src|href)=", markup)


@pytest.mark.slow
def test_the_slider_of_a_page_goes_through_the_layers(written):
    data = read_data(written("similarity", ".html").read_text(encoding="utf-8"))
    (layer,) = (parameter for parameter in data["params"] if parameter["name"] == "layer")
    assert (layer["bind"]["max"], layer["value"]) == (2, 2)
    layer["value"] = 0
    texts = texts_of(vl_convert.vegalite_to_svg(data))
    assert "Cosine of each pair of tokens, embeddings" in texts
    first = CHARTS["similarity"][0].cosines["embeddings"][0, 0]
    assert f"{first:.2f}".replace("-", "−") in texts


def read_data(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(data)


@EVERY
def test_texts_cannot_leave_the_data_of_a_page(written, name):
    page = written(name, ".html").read_text(encoding="utf-8")
    assert EVIL not in page
    assert len(re.findall("<script[ >]", page)) == page.count("</script>") == 3
    assert html.escape(CHARTS[name][0].title) in page


@pytest.mark.parametrize("name", ["new.pdf", "new", "old.svg", "absent/new.svg", "in.html"])
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name):
    for present in ("old.svg", "in.html"):
        (tmp_path / present).write_text("precious")
    read = [("the input", tmp_path / "in.html")]
    with pytest.raises(OutputError):
        check_chart(tmp_path / name, overwrite=name == "in.html", read=read)


@pytest.mark.parametrize("module", ["altair", "sklearn"])
def test_without_the_extra_it_is_named(tmp_path, monkeypatch, module):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == module else find(n))
    with pytest.raises(MissingExtraError, match=r"is not .*\[plot\]"):
        check_chart(tmp_path / "new.png", overwrite=False)
