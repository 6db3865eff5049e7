"""The classifier of the probe: scikit-learn's logistic regression, several at once.

Dimensions: `N` examples, `D` width of a vector, `K` classes.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from bert_features.plots.model import Report

SEED = 0
MAX_ITERATIONS = 3000
_T = TypeVar("_T")


def probabilities(
    vectors: np.ndarray, labels: np.ndarray, classes: int, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, bool]:
    """The probability of each class for some examples, by a classifier that others have trained.

    It is a logistic regression (L2, C = 1) on standardised values. So that every class is possible
    in a code, the `n` training examples have the weight `n`, and one more of each class the weight
    1: the largest stays the largest, and without vectors it would be Laplace's rule.

    Args:
      vectors: float32 [N, D].
      labels: int64 [N], from 0 to K - 1.
      classes: K.
      train: int64, the places of the training examples.
      test: int64 [T], the places of those to predict.

    Returns:
      float64 [T, K]; and whether the classifier converged.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seen = np.unique(labels[train])
    chances, converged = np.zeros((len(test), classes)), True
    if len(seen) == 1:
        chances[:, seen] = 1
    else:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITERATIONS))
        classifier.fit(vectors[train], labels[train])
        chances[:, seen] = classifier.predict_proba(vectors[test])
        converged = bool(classifier[-1].n_iter_.max() < MAX_ITERATIONS)
    return with_one_of_each(chances, len(train)), converged


def with_one_of_each(probabilities: np.ndarray, examples: int) -> np.ndarray:
    """Probabilities [T, K] that some examples have taught, with one more example of each class."""
    mixed: np.ndarray = (examples * probabilities + 1) / (examples + probabilities.shape[1])
    return mixed


def in_parallel(jobs: Sequence[Callable[[], _T]], report: Report) -> list[_T]:
    """What the jobs return, one on each core.

    Within a job libraries compute on one thread: for matrices of this size several threads wait for
    each other more than they compute.
    """
    from joblib import Parallel, cpu_count, delayed
    from threadpoolctl import threadpool_limits

    results: list[_T] = []
    with threadpool_limits(1), warnings.catch_warnings():
        # scikit-learn's have several lines for each fit; a job says itself whether it converged.
        warnings.simplefilter("ignore")
        run = Parallel(n_jobs=cpu_count(), prefer="threads", return_as="generator")
        for result in run(delayed(job)() for job in jobs):
            results.append(result)
            report("fits", len(results), len(jobs))
    return results
