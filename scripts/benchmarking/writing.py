"""What writing costs: the same job with its batches written and thrown away, in turns.

    python -m benchmarking.writing TEXTS FOLDER ROUNDS

Prints the medians: seconds thrown away, seconds written, seconds of those inside the writer.
"""

import sys
import time
from pathlib import Path
from statistics import median

from bert_features import FeatureExtractor, read_examples
from bert_features.formats import open_writer


def main(texts: str, folder: str, rounds: str) -> None:
    """Four layers of every token, as float16."""
    extractor = FeatureExtractor.from_checkpoint("minilm", layers=(-1, -2, -3, -4), dtype="float16")
    thrown, written, inside = [], [], []
    for turn in range(int(rounds) + 1):
        first, second, third = _throw(extractor, texts), *_write(extractor, texts, folder)
        if turn:  # the first traces
            thrown.append(first)
            written.append(second)
            inside.append(third)
    print(median(thrown), median(written), median(inside))


def _throw(extractor: FeatureExtractor, texts: str) -> float:
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
