"""Measures the accuracy of bfloat16 against float32, for every layer and for rankings of texts.

    .venv/bin/python scripts/benchmark_precision.py TEXTS [--lines 1000]

TEXTS is a file with one text per line (`../shared/data/ud_ewt.txt`). The model is the embedded
all-MiniLM-L6-v2 (not Google's BERT). The ranking is Spearman's correlation of the cosine
similarities of all pairs of texts, mean-pooled, between the two precisions.
"""

import argparse
from pathlib import Path

import numpy as np

from bert_features import FeatureExtractor, InputExample

LAYERS = ["embeddings", 0, 1, 2, 3, 4, 5]
OUTPUTS = [
    {"name": "layers", "layers": LAYERS},
    {"name": "text", "layers": [-1], "level": "sequence", "pooling": "mean"},
]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="file with one text per line")
    parser.add_argument("--lines", type=int, default=1000, help="number of lines to use")
    arguments = parser.parse_args()
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    exact, rounded = (features(lines, precision) for precision in ("float32", "bfloat16"))
    print(f"{len(lines)} texts, bfloat16 against float32, cosine per token\n")
    print("| output | mean | 1st percentile | lowest |")
    print("|---|---|---|---|")
    for name, values in exact.items():
        cosines = cosine(values, rounded[name])
        low = np.percentile(cosines, 1)
        print(f"| {name} | {cosines.mean():.6f} | {low:.6f} | {cosines.min():.6f} |")
    rankings = [ranks(similarities(result["text"])) for result in (exact, rounded)]
    print(f"\nranking of all pairs of texts: {np.corrcoef(*rankings)[0, 1]:.6f} (Spearman)")


def features(lines: list[str], precision: str) -> dict[str, np.ndarray]:
    """Every output of all lines, float64 [tokens, D] or [texts, D]."""
    extractor = FeatureExtractor.from_checkpoint("minilm", outputs=OUTPUTS, precision=precision)
    examples = [InputExample(i, line) for i, line in enumerate(lines)]
    batches = [batch.features for batch in extractor.batches(lambda: examples)]
    return {
        name: np.concatenate([batch[name] for batch in batches]).astype(np.float64)
        for name in batches[0]
    }


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosine of each row of a and of b."""
    products = np.einsum("ij,ij->i", a, b)
    return products / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def similarities(vectors: np.ndarray) -> np.ndarray:
    """The cosine similarities of all pairs of rows."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return (unit @ unit.T)[np.triu_indices(len(unit), 1)]


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value."""
    return np.argsort(np.argsort(values))


if __name__ == "__main__":
    main()
