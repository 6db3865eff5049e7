"""Examples of a probe and scores, made by hand."""

import numpy as np

from bert_features.probe.code_length import Code
from bert_features.probe.examples import Examples
from bert_features.probe.scores import METRICS, Score, Scores


def make_examples(labels, vectors, *, types=None, texts=None, is_test=None, level="word"):
    """Examples with labels that are numbers, and vectors by layer."""
    count = len(labels)
    return Examples(
        level,
        tuple(f"label {i}" for i in range(max(labels) + 1)),
        np.array(labels),
        np.arange(count) if types is None else np.array(types),
        np.arange(count) if texts is None else np.array(texts),
        np.zeros(count, bool) if is_test is None else np.array(is_test),
        {(layer, "mean"): np.array(values, np.float32) for layer, values in vectors.items()},
        f"{count} words in 3 texts",
    )


def make_score(layer, pooling, *folds, metric="accuracy", control=0.25):
    """A score with these folds."""
    values = dict.fromkeys(METRICS, np.array(folds, float))
    controls = dict.fromkeys(METRICS, np.full(len(folds), control))
    code = Code(np.array([2, 8]), np.array([2.0, 2.0]), np.array([2.0, 4.0]), 2)
    return Score(layer, pooling, metric, values, controls, code)


def make_scores(scores, mix=None, **baselines):
    """Scores with baselines that are the same on each fold."""
    count = len(scores[0].folds)
    given = {"majority": 0.5} | {name.replace("_", " "): value for name, value in baselines.items()}
    folds = {name: dict.fromkeys(METRICS, np.full(count, v)) for name, v in given.items()}
    return Scores(scores, folds, mix)
