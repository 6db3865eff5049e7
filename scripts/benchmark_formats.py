"""How fast each format writes features: token features of four layers, and sequence vectors.

    .venv/bin/python scripts/benchmark_formats.py FOLDER [--megabytes 200] [--rounds 7]

The features are random float16 of width 768, in batches of 2,000 tokens or of 1,024 sequences. The
files go to FOLDER, one format after the other in each round, and are removed. Prints medians:
megabytes of features per second of CPU time, and per second of elapsed time, which includes waiting
for the disk.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bert_features.formats import FORMATS, open_writer
from bert_features.formats.records import Feature, FeatureBatch, Rows

WIDTH = 768
ROWS, LENGTH = 100, 20  # rows of a batch of token features, tokens of a row
SEQUENCES = 1024
FAST = ("arrow", "parquet", "hdf5", "npz")  # the others write a record at a time


def main() -> None:
    """Prints a table for token features and one for sequence vectors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--formats", nargs="*", default=FAST, choices=list(FORMATS))
    arguments = parser.parse_args()
    for name, (features, batch) in {"tokens": tokens(), "sequences": sequences()}.items():
        size = sum(values.nbytes for values in batch.features.values())
        batches = [batch] * max(arguments.megabytes * 10**6 // size, 1)
        megabytes = len(batches) * size / 1e6
        print(f"{name}, {megabytes:.0f} MB, medians of {arguments.rounds} interleaved runs, MB/s")
        seconds = measure(arguments.folder, arguments.formats, features, batches, arguments.rounds)
        for format, pairs in seconds.items():
            cpu, elapsed = (megabytes / median(values) for values in zip(*pairs, strict=True))
            print(f"  {format:<9} {cpu:6.0f} CPU  {elapsed:6.0f} elapsed")


def tokens() -> tuple[tuple[Feature, ...], FeatureBatch]:
    """Four layers of every token."""
    features = tuple(
        Feature(f"layer_output_{i}", (-1 - i,), "none", WIDTH, "float16") for i in range(4)
    )
    count = ROWS * LENGTH
    splits = np.arange(0, count + 1, LENGTH)
    pieces = {
        "tokens": np.full(count, "token", object),
        "token_ids": np.arange(count, dtype=np.int32),
    }
    vectors = {feature.name: _vectors(count) for feature in features}
    return features, FeatureBatch(np.arange(ROWS), levels={"token": Rows(splits, pieces, vectors)})


def sequences() -> tuple[tuple[Feature, ...], FeatureBatch]:
    """One vector of every example."""
    feature = Feature("text", (-1,), "none", WIDTH, "float16", "sequence", "mean")
    return (feature,), FeatureBatch(np.arange(SEQUENCES), {"text": _vectors(SEQUENCES)})


def _vectors(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (count, WIDTH)).astype(np.float16)


def measure(
    folder: Path,
    formats: Sequence[str],
    features: tuple[Feature, ...],
    batches: list[FeatureBatch],
    rounds: int,
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of CPU time and elapsed seconds of each run, by format."""
    seconds: dict[str, list[tuple[float, float]]] = {format: [] for format in formats}
    for turn in range(rounds + 1):
        for format in formats:
            path = folder / f"benchmark.{format}"
            cpu, elapsed = time.process_time(), time.perf_counter()
            with open_writer(path, format=format, features=features, metadata={}) as writer:
                for batch in batches:
                    writer.write(batch)
            cpu, elapsed = time.process_time() - cpu, time.perf_counter() - elapsed
            for made in folder.glob(f"{path.name}*"):
                made.unlink()
            if turn:  # the first imports libraries
                seconds[format].append((cpu, elapsed))
    return seconds


if __name__ == "__main__":
    main()
