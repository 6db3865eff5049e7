"""Compares the cost of outputs: three from one pass with each alone, and words with tokens.

    .venv/bin/python scripts/benchmark_outputs.py TEXTS [--lines 1500] [--rounds 7]

TEXTS is a file with one text per line (`../shared/data/ud_ewt.txt`). Each run is the whole job in
memory, tokenizing included, with the embedded all-MiniLM-L6-v2 (not Google's BERT) in float32. Runs
are interleaved and medians are compared: read the ratios, not the speeds.
"""

import argparse
import statistics
import time
from pathlib import Path

from bert_features import FeatureExtractor, InputExample

TOKENS = {"name": "tokens", "layers": [-1]}
THREE = [
    {"name": "tokens", "layers": [-1, -2, -3, -4], "combine": "sum"},
    {"name": "words", "layers": [-1], "level": "word"},
    {"name": "text", "layers": [-2], "level": "sequence", "special_tokens": False},
]


def main() -> None:
    """Prints the two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="file with one text per line")
    parser.add_argument("--lines", type=int, default=1500, help="number of lines to use")
    parser.add_argument("--rounds", type=int, default=7, help="number of timed runs")
    arguments = parser.parse_args()
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    texts = [InputExample(i, line) for i, line in enumerate(lines)]
    words = [
        InputExample(i, " ".join(line.split()), None, tuple(line.split()))
        for i, line in enumerate(lines)
    ]
    print(f"{len(lines)} texts, medians of {arguments.rounds} interleaved runs, seconds")
    compare(
        {f"{o['name']} alone": (texts, [o]) for o in THREE} | {"all three": (texts, THREE)},
        arguments.rounds,
    )
    print()
    word = {"name": "words", "layers": [-1], "level": "word"}
    compare({"tokens": (words, [TOKENS]), "words": (words, [word])}, arguments.rounds)


def compare(cases: dict, rounds: int) -> None:
    """Runs the cases in turns; prints their medians, and the last one / the slowest other."""
    extractors = {
        name: FeatureExtractor.from_checkpoint("minilm", outputs=outputs, batch_size=32)
        for name, (_, outputs) in cases.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, (examples, _) in cases.items():
            started = time.perf_counter()
            for _ in extractors[name].batches(lambda examples=examples: examples):
                pass
            if turn:  # the first compiles
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"  {name:<14} {medians[name]:6.2f}  ({min(values):.2f} - {max(values):.2f})")
    *others, last = medians
    slowest = max(others, key=medians.__getitem__)
    print(f"  {last} / {slowest}: {medians[last] / medians[slowest]:.3f}")


if __name__ == "__main__":
    main()
