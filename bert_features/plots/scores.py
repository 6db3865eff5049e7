"""Scores of layers and poolings in cross-validation, and which one they speak for.

Dimensions: `N` texts, `D` width of a vector, `F` folds.
"""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_features.config.layers import EMBEDDINGS
from bert_features.plots.model import Layer, Report, layer_name
from bert_features.plots.pooled import each_on_one_thread

logger = logging.getLogger("bert_features")

SEED = 0
_MAX_ITERATIONS = 3000
# Differences that would come by chance more often than this do not count.
_SIGNIFICANCE = 0.05
_EMBEDDINGS_WIN = (
    " The embeddings lie below layer 0 and contain no context: the words alone predict these "
    "labels, so counts of words may do as well, without BERT."
)
METRICS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy"}


@dataclass(frozen=True)
class Score:
    """The score of a classifier on one layer and pooling.

    Attributes:
      folds: float [F], its score on each fold.
    """

    layer: Layer
    pooling: str
    folds: np.ndarray

    @property
    def mean(self) -> float:
        """The mean over the folds."""
        return float(self.folds.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over the folds."""
        return float(self.folds.std(ddof=1) / math.sqrt(len(self.folds)))

    def describe(self) -> str:
        """Its layer, its pooling and its score, as `layer 3, mean (0.91 ± 0.02)`."""
        return f"{layer_name(self.layer)}, {self.pooling} ({self.mean:.3f} ± {self.error:.3f})"


def cross_validate(
    vectors: Mapping[tuple[Layer, str], np.ndarray],
    labels: Sequence[str],
    *,
    folds: int,
    metric: str,
    report: Report = lambda unit, done, total: None,
) -> list[Score]:
    """Scores a linear classifier on each layer and pooling; all on the same folds.

    The classifier is a logistic regression on standardised values, both fitted on the other folds.
    Each fold has the same share of every class. The vectors are float32 [N, D].
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    split = StratifiedKFold(folds, shuffle=True, random_state=SEED)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=_MAX_ITERATIONS))
    scores = []
    for layer, pooling in each_on_one_thread("scores", vectors, report):
        values = vectors[layer, pooling]
        with _logged_convergence(layer, pooling):
            found = cross_val_score(classifier, values, list(labels), cv=split, scoring=metric)
        scores.append(Score(layer, pooling, found))
    return scores


@contextlib.contextmanager
def _logged_convergence(layer: Layer, pooling: str) -> Iterator[None]:
    """Makes scikit-learn's warnings of several lines, one for each fold, a single log line."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    if caught:
        logger.warning(
            "%s, %s: the classifier did not converge in %d iterations; its score may be too low",
            *(layer_name(layer), pooling, _MAX_ITERATIONS),
        )


def chance_level(labels: Sequence[str], metric: str) -> float:
    """The score of a classifier that always answers the most frequent label."""
    counts = [labels.count(label) for label in set(labels)]
    return 1 / len(counts) if metric == "balanced_accuracy" else max(counts) / len(labels)


def differ(better: np.ndarray, worse: np.ndarray | float) -> bool:
    """Whether scores of folds, float [F], differ from others, or a constant, by more than chance.

    It is the t-test for cross-validation by Nadeau and Bengio (2003): folds share most of their
    training examples, so their scores vary less than independent ones would.
    """
    from scipy.special import stdtrit

    differences = np.asarray(better - worse)
    count, mean = len(differences), float(differences.mean())
    variance = float(differences.var(ddof=1)) * (1 / count + 1 / (count - 1))
    if variance <= 1e-18:
        return abs(mean) > 1e-9
    limit = float(stdtrit(count - 1, 1 - _SIGNIFICANCE / 2))
    return abs(mean) / math.sqrt(variance) > limit


@dataclass(frozen=True)
class Recommendation:
    """The layer and pooling to use.

    Attributes:
      choice: the one to use, the first score within one standard error of the highest; None if
        none is distinguishable from chance.
      sentence: both, for a reader.
    """

    best: Score
    choice: Score | None
    sentence: str


def recommend(scores: Sequence[Score], chance: float, metric: str) -> Recommendation:
    """Chooses a layer and a pooling by the one-standard-error rule.

    The scores are in order: by layer from the lowest, and by pooling from the simplest.
    """
    # The first of equal scores is the simplest; sums of folds differ in their last digits.
    best = max(scores, key=lambda score: round(score.mean, 9))
    level = f"{METRICS[metric]}, chance level {chance:.3f}"
    if best.mean <= chance or not differ(best.folds, chance):
        sentence = (
            f"No layer is distinguishable from chance with {len(best.folds)} folds: the highest "
            f"score is {best.describe()}, {level}. A linear classifier cannot read these labels, "
            "or there are too few texts."
        )
        return Recommendation(best, None, sentence)
    choice = next(s for s in scores if s.mean >= best.mean - best.error - 1e-9)
    reason = "the highest score"
    if choice is not best:
        gain = "needs fewer layers" if choice.layer != best.layer else "has a simpler pooling"
        reason = f"within one standard error of the highest, {best.describe()}, and {gain}"
    sentence = f"Use {choice.describe()}: {reason}; {level}.{_doubt(scores, best, choice)}"
    if choice.layer == EMBEDDINGS:
        sentence += _EMBEDDINGS_WIN
    return Recommendation(best, choice, sentence)


def _doubt(scores: Sequence[Score], best: Score, choice: Score) -> str:
    """Names the simplest score that chance alone may keep from the best; empty if it is chosen."""
    simplest = next(s for s in scores if s is best or not differ(best.folds, s.folds))
    folds = len(best.folds)
    before = [score is choice for score in scores].index(True)
    if not any(score is simplest for score in scores[:before]):
        return f" Every simpler one is distinguishably lower ({folds} folds)." if before else ""
    return (
        f" With {folds} folds even {simplest.describe()} is not distinguishable from the highest; "
        "more texts would show whether it is as good."
    )
