"""Measures outputs of level span: their speed and size, and what context is worth to a chunk.

    .venv/bin/python benchmarks/spans.py speed TEXTS    beside `--level sequence`, and file sizes
    .venv/bin/python benchmarks/spans.py context        chunks of documents, and the same alone

TEXTS is a file of text (`../shared/data/ud_ewt.txt`), which is cut into documents of 300 words.
`context` takes tests/data/topics.csv, 60 sentences of four topics: each topic becomes a document,
in whose context its sentences are pooled (late chunking). It ranks all sentences by two kinds of
queries: the name of a topic, and the second half of a sentence. The model is the embedded
all-MiniLM-L6-v2 (not Google's BERT). What is compared runs in turns; read the ratios.
"""

import argparse
import csv
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from bert_features import ExtractConfig, FeatureExtractor, InputExample
from bert_features.formats import open_writer

TOPICS = Path(__file__).resolve().parents[1] / "tests" / "data" / "topics.csv"
CASES = {
    "sequence": {"level": "sequence"},
    **{f"span {pooling}": {"level": "span", "pooling": pooling} for pooling in ("mean", "max")},
    "span first_last": {"level": "span", "pooling": "first_last"},
    "token": {},
}


def speed(options: argparse.Namespace) -> None:
    """Seconds and bytes of a run over documents, of each case; medians of interleaved runs."""
    words = options.texts.read_text(encoding="utf-8").split()
    starts = range(0, min(len(words), options.documents * 300), 300)
    documents = [InputExample(i, " ".join(words[at : at + 300])) for i, at in enumerate(starts)]
    settings = {"layers": (-1,), "runtime": options.runtime}
    extractors = {
        name: FeatureExtractor(
            ExtractConfig.of(
                {**settings, **case} | ({"spans": options.spans} if "span" in name else {})
            )
        )
        for name, case in CASES.items()
    }
    target: dict[str, Any] = {"format": "arrow", "metadata": {}}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    sizes: dict[str, int] = {}
    for turn in range(options.rounds + 1):
        for name, extractor in extractors.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "out.arrow"
                began, cpu = time.perf_counter(), time.process_time()
                with open_writer(path, **target, features=extractor.features()) as writer:
                    for batch in extractor.batches(lambda: documents, warn=False):
                        writer.write(batch)
                if turn:  # the first imports libraries and compiles
                    own = time.perf_counter() - began, time.process_time() - cpu
                    seconds[name].append(own)
                sizes[name] = path.stat().st_size
    device = extractors["sequence"].device
    print(f"{len(documents)} documents, spans {options.spans}, {device}, {options.rounds} rounds")
    print("| level | seconds | CPU seconds | speed of sequence | by CPU | bytes |")
    print("|---|---|---|---|---|---|")
    base = [median(column) for column in zip(*seconds["sequence"], strict=True)]
    for name, rows in seconds.items():
        own = [median(column) for column in zip(*rows, strict=True)]
        wall, cpu = (b / o for b, o in zip(base, own, strict=True))
        print(
            f"| {name} | {own[0]:.2f} | {own[1]:.2f} | {wall:.3f} | {cpu:.3f} | {sizes[name]:,} |"
        )


def context(options: argparse.Namespace) -> None:
    """How well sentences are found, with the context of their document and alone."""
    del options
    with TOPICS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    topics = sorted({row["topic"] for row in rows})
    by_topic = [[row["text"] for row in rows if row["topic"] == topic] for topic in topics]
    sentences = [text for texts in by_topic for text in texts]
    own_topic = np.repeat(np.arange(len(topics)), [len(texts) for texts in by_topic])
    common = {"layers": (-1,), "normalize": True}
    late = FeatureExtractor(ExtractConfig(level="span", **common))
    alone = FeatureExtractor(ExtractConfig(level="sequence", special_tokens=False, **common))
    documents = [" ".join(texts) for texts in by_topic]
    vectors = {
        "in the document": late.encode(documents, spans=list(map(_spans, by_topic)), ragged=True)[
            0
        ],
        "alone": alone.encode(sentences),
    }
    halves = [" ".join(text.split()[len(text.split()) // 2 :]) for text in sentences]
    of_topics, of_halves = alone.encode(topics), alone.encode(halves)
    print(f"{len(sentences)} sentences of {len(topics)} documents")
    print(
        "| sentences | mean average precision of a topic | mean reciprocal rank of the sentence |"
    )
    print("|---|---|---|")
    for name, found in vectors.items():
        precision = [
            _average_precision(found @ query, own_topic == i) for i, query in enumerate(of_topics)
        ]
        similarities = of_halves @ found.T
        ranks = 1 + (similarities > np.diag(similarities)[:, None]).sum(axis=1)
        print(f"| {name} | {np.mean(precision):.3f} | {np.mean(1 / ranks):.3f} |")


def _spans(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Where texts begin and end once they are joined by blanks."""
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    return [(int(end) - len(text), int(end)) for text, end in zip(texts, ends, strict=True)]


def _average_precision(similarities: np.ndarray, relevant: np.ndarray) -> float:
    ranked = relevant[np.argsort(-similarities, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    return float(precision[ranked].mean())


def main() -> None:
    """Runs one measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="PART")
    of_speed = commands.add_parser("speed", help=speed.__doc__)
    of_speed.add_argument("texts", type=Path, help="UTF-8 file")
    of_speed.add_argument("--documents", type=int, default=120)
    of_speed.add_argument("--spans", default="32/8", help="the setting `spans`")
    of_speed.add_argument("--runtime", default="tensorflow", choices=("tensorflow", "jax"))
    of_speed.add_argument("--rounds", type=int, default=5, help="number of timed runs")
    of_speed.set_defaults(run=speed)
    commands.add_parser("context", help=context.__doc__).set_defaults(run=context)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
