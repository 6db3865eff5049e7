"""Scores of layers and poolings: of a classifier, of control labels, and of baselines.

Dimensions: `N` examples, `D` width of a vector, `K` classes, `F` folds.
"""

import itertools
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bert_features.plots.model import Layer, Report, layer_name, layer_place
from bert_features.probe.classifier import MAX_ITERATIONS, SEED, in_parallel, probabilities
from bert_features.probe.code_length import Code, online_code, portions_of
from bert_features.probe.examples import Examples
from bert_features.probe.mixing import fit_mix

logger = logging.getLogger("bert_features")

METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
}
# The score on each fold by the name of the metric: float64 [F].
Folds = Mapping[str, np.ndarray]


class Split(NamedTuple):
    """Training examples, and the parts of the others that are scored one by one: int64 places."""

    train: np.ndarray
    tests: Sequence[np.ndarray]


@dataclass(frozen=True)
class Score:
    """The scores of a classifier on one layer and pooling.

    Attributes:
      metric: the metric that is shown, one of `METRICS`.
      probe: its scores.
      control: its scores where each type has a random label.
      code: the labels in bits.
    """

    layer: Layer
    pooling: str
    metric: str
    probe: Folds
    control: Folds
    code: Code

    @property
    def folds(self) -> np.ndarray:
        """The score on each fold, float64 [F]."""
        return self.probe[self.metric]

    @property
    def selectivity(self) -> np.ndarray:
        """How much higher than with random labels it is on each fold, float64 [F]."""
        return self.folds - self.control[self.metric]

    @property
    def mean(self) -> float:
        """The mean over the folds."""
        return float(self.folds.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over the folds."""
        return standard_error(self.folds)

    def describe(self) -> str:
        """Its layer, its pooling and its score, as `layer 3, mean (0.91 ± 0.02)`."""
        return f"{layer_name(self.layer)}, {self.pooling} ({self.mean:.3f} ± {self.error:.3f})"


@dataclass(frozen=True)
class Mix:
    """A learned mix of all layers of a pooling, on each fold.

    Attributes:
      probe: its scores.
      weights: float64 [F or 1, L], the weight of each layer; those of a layer add up to 1.
      layers: L.
    """

    pooling: str
    metric: str
    probe: Folds
    weights: np.ndarray
    layers: tuple[Layer, ...]

    @property
    def expected_layers(self) -> np.ndarray:
        """The mean of the layers' numbers by their weights, on each fold; embeddings are -1."""
        places = np.array([layer_place(layer) for layer in self.layers])
        expected: np.ndarray = self.weights @ places
        return expected


@dataclass(frozen=True)
class Scores:
    """All that the probe found.

    Attributes:
      scores: by layer from the lowest, and by pooling in the order asked for.
      baselines: the scores of each baseline, by its name.
      mix: of the first pooling; None if there is one layer alone.
    """

    scores: Sequence[Score]
    baselines: Mapping[str, Folds]
    mix: Mix | None


def standard_error(folds: np.ndarray) -> float:
    """The standard error of the mean of scores on folds."""
    return float(folds.std(ddof=1) / math.sqrt(len(folds)))


def splits_of(examples: Examples, folds: int) -> list[Split]:
    """How examples are split: by cross-validation, or by the file of test examples.

    Folds have about the same share of each class. All examples of a text are in the same fold, and
    all copies of a text. With test examples there is one split, whose tests are cut in such folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    every = np.arange(len(examples.labels))
    tested = examples.is_test
    scored = every[tested] if tested.any() else every
    cut = StratifiedGroupKFold(folds, shuffle=True, random_state=SEED)
    labels, texts = examples.labels[scored], examples.texts[scored]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rare classes, which `gather` names
        parts = [scored[test] for _, test in cut.split(np.zeros(len(scored)), labels, texts)]
    if tested.any():
        return [Split(every[~tested], parts)]
    return [Split(np.setdiff1d(every, part), [part]) for part in parts]


def evaluate(
    labels: np.ndarray, splits: Sequence[Split], predicted: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """The scores of what was predicted of all examples of each split, int64 [N]."""
    from sklearn.metrics import accuracy_score, f1_score, recall_score

    parts = [
        (labels[test], guesses[test])
        for split, guesses in zip(splits, predicted, strict=True)
        for test in split.tests
    ]
    macro: dict[str, Any] = {"average": "macro", "zero_division": 0}
    scores = {
        "accuracy": [accuracy_score(*part) for part in parts],
        # Of the classes that occur; sklearn's own function warns of others.
        "balanced_accuracy": [recall_score(*p, labels=np.unique(p[0]), **macro) for p in parts],
        "macro_f1": [f1_score(*part, **macro) for part in parts],
    }
    return {name: np.array(values) for name, values in scores.items()}


def baselines(examples: Examples, splits: Sequence[Split]) -> dict[str, Folds]:
    """The scores of the most frequent label, and of the most frequent label of each type."""
    labels, types = examples.labels, examples.types
    frequent, by_type = [], []
    for train, _ in splits:
        counts = np.zeros((types.max() + 1, labels.max() + 1), np.int64)
        np.add.at(counts, (types[train], labels[train]), 1)
        most = counts.sum(0).argmax()
        frequent.append(np.full(len(labels), most))
        by_type.append(np.where(counts.any(1), counts.argmax(1), most)[types])
    scores: dict[str, Folds] = {"majority": evaluate(labels, splits, frequent)}
    if examples.level != "sequence":  # there is hardly a text in both parts
        scores[f"{examples.level} types"] = evaluate(labels, splits, by_type)
    return scores


def control_labels(examples: Examples) -> np.ndarray:
    """A random label for each type, int64 [N]: the control task of Hewitt and Liang (2019).

    A label is drawn as often as it occurs.
    """
    drawn = np.random.default_rng(SEED).choice(examples.labels, examples.types.max() + 1)
    return np.asarray(drawn[examples.types])


def score_all(
    examples: Examples, *, folds: int, metric: str, report: Report = lambda unit, done, total: None
) -> Scores:
    """Scores a linear classifier on each layer and pooling, and on a mix, all on the same folds."""
    splits, classes = splits_of(examples, folds), len(examples.classes)
    tasks = examples.labels, control_labels(examples)
    pairs, vectors = list(examples.vectors), list(examples.vectors.values())
    pooling = pairs[0][1]
    layers = {layer: values for (layer, its), values in examples.vectors.items() if its == pooling}
    mixed = splits if len(layers) > 1 else []
    train = np.flatnonzero(~examples.is_test)
    order, ends = portions_of(examples.texts[train])
    # The longest first.
    jobs: list[Any] = [
        *(partial(fit_mix, [*layers.values()], tasks[0], classes, s.train) for s in mixed),
        *(partial(online_code, x, tasks[0], classes, train[order], ends) for x in vectors),
        *(partial(_predict, x, t, classes, s) for x in vectors for t in tasks for s in splits),
    ]
    results = iter(in_parallel(jobs, report))
    mixes = list(itertools.islice(results, len(mixed)))
    codes = list(itertools.islice(results, len(pairs)))
    scores = []
    for pair, code in zip(pairs, codes, strict=True):
        values, converged = [], code.converged
        for labels in tasks:
            fits = list(itertools.islice(results, len(splits)))
            values.append(evaluate(labels, splits, [predicted for predicted, _ in fits]))
            converged &= all(ok for _, ok in fits)
        probe, control = values
        scores.append(Score(*pair, metric, probe, control, code))
        if not converged:
            logger.warning(
                "%s, %s: the classifier did not converge in %d iterations; its score may be too "
                "low",
                *(layer_name(pair[0]), pair[1], MAX_ITERATIONS),
            )
    mix = None
    if mixes:
        scored = evaluate(tasks[0], splits, [predicted for _, predicted in mixes])
        weights = np.stack([weights for weights, _ in mixes])
        mix = Mix(pooling, metric, scored, weights, tuple(layers))
    return Scores(scores, baselines(examples, splits), mix)


def _predict(
    vectors: np.ndarray, labels: np.ndarray, classes: int, split: Split
) -> tuple[np.ndarray, bool]:
    """The labels of test examples, int64 [N], -1 elsewhere; and whether the fit converged."""
    predicted = np.full(len(labels), -1)
    tests = np.concatenate(split.tests)
    chances, converged = probabilities(vectors, labels, classes, split.train, tests)
    predicted[tests] = chances.argmax(1)
    return predicted, converged
