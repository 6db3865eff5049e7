"""What `dedupe` costs where no text repeats, and what it gains where half of them do.

    python scripts/benchmark_dedupe.py TEXTS [--checkpoint minilm] [--examples 4000] [--runs 3]

TEXTS is a text file with a text on each line. Each run writes npz vectors of texts, in a process
that has loaded the model before. It prints seconds, and CPU seconds, which other programs on the
machine disturb less; each is the median of the runs, which take turns.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bert_features import ExtractConfig, FeatureExtractor
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import open_store, store_place
from bert_features.extraction.writing import write_behind
from bert_features.formats import open_writer
from bert_features.readers.input_example import InputExample

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "uniform_batches": {"uniform_batches": True},
    "dedupe": {"dedupe": True},
}


def examples(texts: list[str], count: int, distinct: int) -> Iterator[InputExample]:
    """`count` examples with this many distinct texts, each as often as the others."""
    for i in range(count):
        text = texts[i % distinct % len(texts)]
        round_ = i % distinct // len(texts)
        yield InputExample(i, f"{text} {round_}" if round_ else text)


def run(extractor: FeatureExtractor, folder: Path, found: Iterator[InputExample]) -> Counts:
    """One job; its counts."""
    counts = Counts()

    def note(latest: Counts) -> None:
        nonlocal counts
        counts = latest

    output = folder / "out.npz"
    with (
        open_writer(
            output,
            format="npz",
            features=extractor.features(),
            metadata=extractor.metadata(),
            id_type="int",
            overwrite=True,
        ) as writer,
        store_place(extractor.config, output) as place,
        open_store(place, extractor.preparation) as store,
    ):
        batches = extractor.batches(lambda: found, progress=note, warn=False, store=store)
        write_behind(batches, writer.write, max_bytes=256 << 20)
    return counts


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--examples", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    texts = list(dict.fromkeys(arguments.texts.read_text(encoding="utf-8").splitlines()))
    fixed = {"checkpoint": arguments.checkpoint, "do_lower_case": True, "level": "sequence"}
    extractors = {
        name: FeatureExtractor(
            ExtractConfig.of({**fixed, "layers": (-1,), "pooling": "mean", **settings})
        )
        for name, settings in SETTINGS.items()
    }
    print("| distinct texts | run | seconds | CPU seconds | padding | reused |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for distinct in (arguments.examples, arguments.examples // 2):
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in SETTINGS}
            counts: dict[str, Counts] = {}
            for _ in range(arguments.runs):
                for name, extractor in extractors.items():
                    found = examples(texts, arguments.examples, distinct)
                    started, cpu = time.perf_counter(), time.process_time()
                    counts[name] = run(extractor, Path(folder), found)
                    times[name].append((time.perf_counter() - started, time.process_time() - cpu))
            for name, measured in times.items():
                seconds, cpu = (median(values) for values in zip(*measured, strict=True))
                done = counts[name]
                columns = (
                    f"{distinct:,} of {arguments.examples:,}",
                    name,
                    f"{seconds:.1f}",
                    f"{cpu:.1f}",
                    f"{done.pad_waste:.1%}",
                    f"{done.examples_reused:,}",
                )
                print(f"| {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
