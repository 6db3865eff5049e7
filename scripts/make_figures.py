"""Makes the figures of docs/plots.md from texts that ship with the repository.

python scripts/make_figures.py
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import OutputConfig
from bert_features.corpus.job import extract
from bert_features.plots.attention import show_attention
from bert_features.plots.charts import Chart, write_chart
from bert_features.plots.cka import compare_layers
from bert_features.plots.histogram import token_histogram
from bert_features.plots.labelled import read_labelled
from bert_features.plots.scatter import scatter_texts
from bert_features.plots.similarity import compare_tokens
from bert_features.plots.word import compare_word
from bert_features.probe.examples import find_origin
from bert_features.probe.report import probe

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ExtractConfig(device="cpu")


TEXTS = ROOT / "tests" / "data"


def _settings(**labels: str) -> ExtractConfig:
    return ExtractConfig.of({"device": "cpu", "level": "word", **labels})


def _scatter() -> Chart:
    topics = read_labelled(str(TEXTS / "topics.csv"), _settings(label_field="topic"))
    layers, methods = ("embeddings", 2, -1), ("pca", "tsne")
    return scatter_texts(SETTINGS, topics, layers=layers, methods=methods)


def _cka() -> Chart:
    with tempfile.TemporaryDirectory() as folder:
        outputs = (OutputConfig(layers=("embeddings", "all")),)
        layers = SETTINGS.model_copy(update={"outputs": outputs})
        extract(layers, TEXTS / "topics.csv", path := Path(folder, "layers.npz"))
        return compare_layers(path, path)


# File name -> computes the chart.
CHARTS: dict[str, Callable[[], Chart]] = {
    "histogram.svg": lambda: token_histogram(SETTINGS, "They sat by the river bank.", "bank"),
    "similarity.svg": lambda: compare_tokens(SETTINGS, ["A dog barked.", "The cat ran off."]),
    "attention.svg": lambda: show_attention(SETTINGS, "The cat was tired.", layers=[2]),
    "word.svg": lambda: compare_word(
        SETTINGS,
        "bank",
        read_labelled(str(TEXTS / "senses.tsv"), _settings(label_field="sense")),
        layer=2,
    ),
    "scatter.svg": _scatter,
    "cka.svg": _cka,
    "entities.svg": lambda: probe(
        find_origin(str(TEXTS / "entities.conll"), _settings(label_field="ner")), metric="macro_f1"
    ),
}


def main() -> None:
    """Writes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to make; by default all")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="folder to write")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(CHARTS)):
        parser.error(f"no figure is called {unknown[0]}; the figures are {', '.join(CHARTS)}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or CHARTS:
        chart = CHARTS[name]()
        write_chart(chart, arguments.to / name, overwrite=True)
        print(f"{arguments.to / name}: {chart.caption}")


if __name__ == "__main__":
    main()
