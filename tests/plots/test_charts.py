"""Charts as files: pictures of every kind, reports that hold their data and load nothing."""

import html
import json
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from bert_features.errors import MissingExtraError, OutputError
from bert_features.plots.charts import check_chart, write_chart
from bert_features.plots.histogram import Histogram
from bert_features.plots.labelled import Labelled
from bert_features.plots.labels import Labels
from bert_features.plots.occurrences import Occurrence
from bert_features.plots.probe import Probe
from bert_features.plots.scatter import Scatter
from bert_features.plots.scores import Score, recommend
from bert_features.plots.similarity import TokenSimilarity
from bert_features.plots.word import WordSimilarity
from bert_features.readers.input_example import InputExample

LAYERS = ("embeddings", 0, 1)
EVIL = "</script><img src=x onerror=alert(1)>&<!-- {{title}} {{data}}"
RANDOM = np.random.default_rng(0)


def cosines(rows, columns):
    return {layer: RANDOM.uniform(-0.2, 1, (rows, columns)).astype("f") for layer in LAYERS}


def occurrences():
    return [Occurrence(i + 1, f"the bank {i}", 4, 8, "xy"[i // 2]) for i in range(4)]


def scatter():
    texts = [InputExample(i, EVIL) for i in range(6)]
    labelled = Labelled("in.csv", texts, ["sport", "money", EVIL] * 2)
    columns = (("mean", "PCA"), ("pooler", "PCA"))
    places = {(layer, "mean", "PCA"): RANDOM.normal(size=(6, 2)) for layer in LAYERS}
    places[1, "pooler", "PCA"] = places[1, "mean", "PCA"]
    return Scatter("toy model", labelled, LAYERS, columns, places)


def probe():
    scores = [
        Score(layer, pooling, RANDOM.uniform(0.6, 1, 3))
        for layer in LAYERS
        for pooling in ("mean", "cls")
    ]
    recommendation = recommend(scores, 0.5, "accuracy")
    return Probe("toy model", {"x": 3, "y": 3}, scores, 0.5, "accuracy", recommendation)


# Kind -> (the chart, texts that its picture has).
CHARTS = {
    "similarity": (
        TokenSimilarity("toy model", ("[CLS]", EVIL, "cat"), ("a", "##b"), cosines(3, 2), 1),
        ["Cosine of each pair of tokens, layer 1", "[CLS]", "cat", "##b", "cosine"],
    ),
    "word": (
        WordSimilarity("toy model", "bank", occurrences(), cosines(4, 4), 0),
        ["each pair, layer 0", "same label (mean of 2)", "other label (mean of 4)", "2 x: the ba"],
    ),
    "histogram": (
        Histogram("toy model", EVIL, "bank", 2, LAYERS, RANDOM.normal(size=(3, 8))),
        ["dimensions", "embeddings: mean", "layer 0: mean", "layer 1: mean"],
    ),
    "one layer": (
        Histogram("toy model", "a bank", "bank", 2, LAYERS, RANDOM.normal(size=(3, 8)), 0),
        ["Values of the token “bank” in “a bank”", "layer 0: mean"],
    ),
    "scatter": (scatter(), ["mean, PCA", "pooler, PCA", "layer 1", "sport", "last layer only"]),
    "probe": (probe(), ["chance", "recommended", "mean", "cls", "embeddings", "Use "]),
}
EVERY = pytest.mark.parametrize("name", CHARTS)


@EVERY
def test_a_png_has_the_size_of_its_figure(tmp_path, name):
    chart, _ = CHARTS[name]
    write_chart(chart, tmp_path / "new.png", overwrite=False)
    header = (tmp_path / "new.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:])
    assert 600 <= width <= 3000
    assert 400 <= height <= 3000


@EVERY
def test_an_svg_has_its_labels_as_texts_and_repeats(tmp_path, name):
    chart, labels = CHARTS[name]
    write_chart(chart, tmp_path / "new.svg", overwrite=False)
    svg = (tmp_path / "new.svg").read_text(encoding="utf-8")
    texts = ["".join(node.itertext()) for node in ET.fromstring(svg).iter() if "text" in node.tag]
    for label in ["toy model", *labels]:
        assert any(label in text for text in texts), label
    write_chart(chart, tmp_path / "new.svg", overwrite=True)
    assert (tmp_path / "new.svg").read_text(encoding="utf-8") == svg


def test_the_lowest_panel_of_each_column_has_the_values_of_its_axis():
    layers = ("embeddings", *range(4))  # a row of four, and one below
    chart = Histogram("toy model", "a bank", "bank", 2, layers, RANDOM.normal(size=(5, 8)))
    axes = chart.draw(Labels.for_texts(chart.texts(), keeps_text=False)).axes
    shown = [place for place, ax in enumerate(axes) if ax.xaxis.get_tick_params()["labelbottom"]]
    assert [place for place in shown if axes[place].get_visible()] == [1, 2, 3, 4]


def test_the_legend_of_a_probe_leaves_room_for_a_long_title():
    chart = replace(probe(), classes={str(i): 200 for i in range(20)})
    figure = chart.draw(Labels.for_texts(chart.texts(), keeps_text=False))
    figure.canvas.draw()
    (legend,) = figure.legends
    (title,) = (text for text in figure.texts if "4,000 texts, 20 classes" in text.get_text())
    assert not legend.get_window_extent().overlaps(title.get_window_extent())


def read_data(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(data)


@EVERY
def test_a_report_holds_its_data_and_names_no_address(tmp_path, name):
    chart, _ = CHARTS[name]
    write_chart(chart, tmp_path / "new.html", overwrite=False)
    page = (tmp_path / "new.html").read_text(encoding="utf-8")
    assert read_data(page) == json.loads(json.dumps(chart.report()))
    assert "default-src 'none'" in page
    code = re.sub(r'(?<=id="data">).*?(?=</script>)', "", page)
    addresses = re.findall(r"\w+://[^\s\"'`<]+|(?:src|href)=", code)
    assert addresses in ([], ["http://www.w3.org/2000/svg"])  # the name of SVG, which nobody loads


@EVERY
def test_texts_cannot_leave_the_data_of_a_report(tmp_path, name):
    chart, _ = CHARTS[name]
    write_chart(chart, tmp_path / "new.html", overwrite=False)
    page = (tmp_path / "new.html").read_text(encoding="utf-8")
    assert EVIL not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert html.escape(chart.report()["title"]) in page


def test_half_a_surrogate_pair_does_not_stop_a_report(tmp_path):
    chart = TokenSimilarity("toy model", ("\ud800",), ("a",), cosines(1, 1), 1)
    write_chart(chart, tmp_path / "new.html", overwrite=False)
    (found,) = read_data((tmp_path / "new.html").read_text(encoding="utf-8"))["charts"]
    assert found["rows"] == ["\ufffd"]


@pytest.mark.slow
@EVERY
def test_a_browser_draws_the_report(tmp_path, name):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium on this machine")
    chart, _ = CHARTS[name]
    write_chart(chart, tmp_path / "new.html", overwrite=False)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/user"]
    done = subprocess.run(
        [browser, *options, "--dump-dom", (tmp_path / "new.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    body = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    report = chart.report()
    assert body.count("<figure>") == len(report["charts"])
    assert f'<h1 id="title">{html.escape(report["title"], quote=False)}</h1>' in body
    assert "<img" not in body
    marks = len(re.findall(r'class="(?:cell|point)"', body))
    assert marks == sum(map(count_marks, report["charts"]))
    if report.get("frames"):
        assert report["frames"][report["start"]] in body


def count_marks(chart):
    """The cells, bars or points that a chart has."""
    if chart["kind"] == "lines":
        return sum(y is not None for series in chart["series"] for y in series["y"])
    if chart["kind"] == "heatMap":
        return len(chart["rows"]) * len(chart["columns"])
    return len(chart["texts"]) if chart["kind"] == "scatter" else len(chart["edges"]) - 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("new.pdf", r"the file type \.pdf is unknown; allowed: \.png, \.svg, \.html"),
        ("new", "the file type without a suffix is unknown"),
        ("old.svg", r"old\.svg exists; pass overwrite=True to replace it"),
        ("absent/new.svg", "there is no folder .*absent; create it"),
        ("in.html", "the input and the figure are the same file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name, message):
    for present in ("old.svg", "in.html"):
        (tmp_path / present).write_text("precious")
    read = [("the input", tmp_path / "in.html")]
    with pytest.raises(OutputError, match=message):
        check_chart(tmp_path / name, overwrite=name == "in.html", read=read)


@pytest.mark.parametrize("kind", ["png", "html"])
def test_a_failure_leaves_what_was_there(tmp_path, kind, monkeypatch):
    class Broken(TokenSimilarity):
        def draw(self, labels):
            raise RuntimeError("broken")

        report = property(draw)

    (tmp_path / f"old.{kind}").write_text("precious")
    chart = Broken("toy model", ("a",), ("b",), cosines(1, 1), 1)
    with pytest.raises((RuntimeError, TypeError)):
        write_chart(chart, tmp_path / f"old.{kind}", overwrite=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("module", ["matplotlib", "sklearn"])
def test_without_the_extra_it_is_named(tmp_path, monkeypatch, module):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == module else find(n))
    with pytest.raises(MissingExtraError, match=r"is not installed. Install it with: .*\[plot\]"):
        check_chart(tmp_path / "new.png", overwrite=False)
