"""Whether a rounder or narrower space ranks similarities better: Spearman's correlation x 100.

    .venv/bin/python benchmarks/rounding.py PAIRS TEXTS [--checkpoint minilm]    under 3 minutes

PAIRS is a file as `small_vectors.py` reads it (`sts-test.csv` of the STS benchmark), TEXTS has a
text a line (`ud_ewt.txt`). Vectors are means of the tokens of a layer, [CLS] and [SEP] included,
and similarities their cosines. Mean, whitening (Su and others, 2021) and the two largest principal
components to remove (Mu and Viswanath, 2018) are fitted in float64, on TEXTS and on the texts of
PAIRS. The second table keeps the first k dimensions, or the k largest components of TEXTS, which
centres first.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from small_vectors import cosines, ranks, read_pairs

from bert_features import FeatureExtractor

DIMENSIONS = (16, 32, 50, 64, 128, 256, 384)


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pairs", type=Path, help="file of pairs with a score")
    parser.add_argument("texts", type=Path, help="file of texts to fit on, one a line")
    parser.add_argument("--checkpoint", default="minilm")
    arguments = parser.parse_args()
    firsts, seconds, scores = read_pairs(arguments.pairs)
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()
    extractor = FeatureExtractor.from_checkpoint(
        arguments.checkpoint, level="sequence", pooling="mean", layers="embeddings,all"
    )
    texts, a, b = (layers_of(extractor, side) for side in (lines, firsts, seconds))
    names = ["embeddings", *range(len(texts) - 1)]
    print_row("layer", "fitted on", "as it is", "centred", "2 removed", "whitened")
    print_row(*["---"] * 6)
    for name, *vectors in zip(names, texts, a, b, strict=True):
        own = np.concatenate(vectors[1:])
        for source, fitted in ((arguments.texts, vectors[0]), (arguments.pairs, own)):
            print_row(name, source.name, *scores_by_shape(fitted, *vectors[1:], scores))
    print()
    print_row("layer", *DIMENSIONS)
    print_row(*["---"] * (len(DIMENSIONS) + 1))
    for name, *vectors in zip(names, texts, a, b, strict=True):
        first, components = scores_by_dimensions(*vectors, scores)
        print_row(f"{name}, first", *first)
        print_row(f"{name}, PCA", *components)


def layers_of(extractor: FeatureExtractor, texts: Sequence[str]) -> list[np.ndarray]:
    """Vectors of the texts by each layer from the lowest: float64 [N, H]."""
    records = [[*record.features.values()] for record in extractor(list(texts))]
    return [np.array(layer, np.float64) for layer in zip(*records, strict=True)]


def fit(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean [H], components [H, R] from the largest, and their deviations [R]."""
    variances, components = np.linalg.eigh(np.cov(vectors.T))
    # Layer norm leaves a direction without variance, where there is only noise to whiten.
    order = np.flatnonzero(variances > 1e-6 * variances.max())[::-1]
    return vectors.mean(axis=0), components[:, order], np.sqrt(variances[order])


def scores_by_shape(
    fitted: np.ndarray, a: np.ndarray, b: np.ndarray, scores: np.ndarray
) -> list[float]:
    """Correlations as it is, centred, without two components, whitened."""
    mean, components, deviations = fit(fitted)
    largest = components[:, :2]
    left = np.eye(len(mean)) - largest @ largest.T
    pairs = [(a, b), (a - mean, b - mean)]
    pairs += [
        ((a - mean) @ change, (b - mean) @ change) for change in (left, components / deviations)
    ]
    return [spearman(*pair, scores) for pair in pairs]


def scores_by_dimensions(
    fitted: np.ndarray, a: np.ndarray, b: np.ndarray, scores: np.ndarray
) -> tuple[list[float], list[float]]:
    """Correlations of the first k dimensions, and of the k largest components."""
    mean, components, _ = fit(fitted)
    x, y = (a - mean) @ components, (b - mean) @ components
    return (
        [spearman(a[:, :k], b[:, :k], scores) for k in DIMENSIONS],
        [spearman(x[:, :k], y[:, :k], scores) for k in DIMENSIONS],
    )


def spearman(a: np.ndarray, b: np.ndarray, scores: np.ndarray) -> float:
    """Spearman's correlation of the cosines of pairs with their scores, times 100."""
    return 100 * float(np.corrcoef(ranks(cosines(a, b)), ranks(scores))[0, 1])


def print_row(*cells: object) -> None:
    """Prints a line of a table; numbers with two decimals."""
    cells = tuple(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
