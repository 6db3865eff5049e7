"""Makes the figures of docs/plots.md from texts that ship with the repository.

python scripts/make_figures.py
"""

import argparse
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.plots.charts import Chart, write_chart
from bert_features.plots.histogram import token_histogram
from bert_features.plots.labelled import read_labelled
from bert_features.plots.probe import probe
from bert_features.plots.scatter import scatter_texts
from bert_features.plots.similarity import compare_tokens
from bert_features.plots.word import compare_word

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ExtractConfig(device="cpu")


def make_charts() -> dict[str, Chart]:
    """File name -> the chart."""
    topics = read_labelled(str(ROOT / "tests/data/topics.csv"), SETTINGS, "topic")
    senses = read_labelled(str(ROOT / "tests/data/senses.tsv"), SETTINGS, "sense")
    layers = ("embeddings", 2, -1)
    return {
        "histogram.svg": token_histogram(SETTINGS, "They sat by the river bank.", "bank"),
        "similarity.svg": compare_tokens(SETTINGS, ["A dog barked.", "The cat ran off."]),
        "word.svg": compare_word(SETTINGS, "bank", senses, layer=2),
        "scatter.svg": scatter_texts(SETTINGS, topics, layers=layers, poolings=["mean", "cls"]),
        "probe.svg": probe(SETTINGS, topics),
    }


def main() -> None:
    """Writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="folder to write")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in make_charts().items():
        write_chart(chart, folder / name, overwrite=True)
        print(f"{folder / name}: {chart.caption}")


if __name__ == "__main__":
    main()
