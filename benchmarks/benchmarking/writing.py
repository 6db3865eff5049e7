"""Measures the cost of writing: runs the same job with and without writing, in turns.

    python -m benchmarking.writing TEXTS FOLDER ROUNDS

Prints three medians in seconds: without writing, with writing, and the part inside the writer.
"""

import sys
import time
from pathlib import Path
from statistics import median

from bert_features import FeatureExtractor, read_examples
from bert_features.formats import open_writer


def main(texts: str, folder: str, rounds: str) -> None:
    """Extracts four layers of every token, as float16; prints the medians."""
    extractor = FeatureExtractor.from_checkpoint("minilm", layers=(-1, -2, -3, -4), dtype="float16")
    unwritten, written, inside = [], [], []
    for turn in range(int(rounds) + 1):
        first, second, third = (
            _run_without_writing(extractor, texts),
            *_write(extractor, texts, folder),
        )
        if turn:  # the first run traces
            unwritten.append(first)
            written.append(second)
            inside.append(third)
    print(median(unwritten), median(written), median(inside))


def _run_without_writing(extractor: FeatureExtractor, texts: str) -> float:
    started = time.perf_counter()
    for _ in extractor.batches(lambda: read_examples(texts)):
        pass
    return time.perf_counter() - started


def _write(extractor: FeatureExtractor, texts: str, folder: str) -> tuple[float, float]:
    started, inside = time.perf_counter(), 0.0
    with open_writer(
        Path(folder, "features.parquet"),
        format="parquet",
        features=extractor.features(),
        metadata=extractor.metadata(),
        overwrite=True,
    ) as writer:
        for batch in extractor.batches(lambda: read_examples(texts)):
            before = time.perf_counter()
            writer.write(batch)
            inside += time.perf_counter() - before
        before = time.perf_counter()
    ended = time.perf_counter()
    return ended - started, inside + ended - before


if __name__ == "__main__":
    main(*sys.argv[1:])
