"""Scores, control labels and baselines of the probe against loops of their own."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import StratifiedGroupKFold

from bert_features.probe.scores import (
    METRICS,
    baselines,
    control_labels,
    score_all,
    splits_of,
    standard_error,
)
from tests.probe.examples import make_examples

GENERATOR = np.random.default_rng(0)
LABELS = np.array([0, 1, 2] * 16)
TEXTS = np.repeat(np.arange(12), 4)
TYPES = GENERATOR.integers(0, 9, 48)
VECTORS = GENERATOR.normal(size=(48, 5)).astype(np.float32) + LABELS[:, None]
EXAMPLES = make_examples(LABELS, {0: VECTORS, 1: -VECTORS}, types=TYPES, texts=TEXTS)


def plain_scores(labels, folds):
    """Each metric on each fold, by scikit-learn on values that are standardised by hand."""
    found = {name: [] for name in METRICS}
    for train, test in folds:
        mean, deviation = VECTORS[train].mean(0), VECTORS[train].std(0)
        classifier = LogisticRegression(max_iter=3000)
        classifier.fit((VECTORS[train] - mean) / deviation, labels[train])
        answers = classifier.predict((VECTORS[test] - mean) / deviation)
        found["accuracy"].append((answers == labels[test]).mean())
        found["balanced_accuracy"].append(balanced_accuracy_score(labels[test], answers))
        found["macro_f1"].append(f1_score(labels[test], answers, average="macro"))
    return found


@pytest.fixture(scope="module")
def found():
    return score_all(EXAMPLES, folds=3, metric="accuracy")


@pytest.fixture(scope="module")
def folds():
    cut = StratifiedGroupKFold(3, shuffle=True, random_state=0)
    return list(cut.split(VECTORS, LABELS, TEXTS))


def test_scores_are_those_of_a_loop_over_the_folds(found, folds):
    score = found.scores[0]
    for name, wanted in plain_scores(LABELS, folds).items():
        np.testing.assert_allclose(score.probe[name], wanted)
    assert 0.5 < score.mean < 1
    assert score.error == pytest.approx(stats.sem(score.folds))
    assert standard_error(score.folds) == score.error


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_the_control_has_a_random_label_for_each_type(found, folds):
    labels = control_labels(EXAMPLES)
    by_type = [np.unique(labels[each == TYPES]) for each in np.unique(TYPES)]
    assert all(len(own) == 1 for own in by_type)
    assert len(np.unique(np.concatenate(by_type))) > 1
    score = found.scores[0]
    for name, wanted in plain_scores(labels, folds).items():
        np.testing.assert_allclose(score.control[name], wanted)
    np.testing.assert_allclose(
        score.selectivity, score.probe["accuracy"] - score.control["accuracy"]
    )


def test_baselines_know_the_frequencies_alone():
    labels, types = [0, 0, 0, 1, 1, 1, 0, 1], [0, 0, 1, 2, 2, 1, 2, 3]
    examples = make_examples(
        labels, {0: np.zeros((8, 1))}, types=types, is_test=[False] * 4 + [True] * 4
    )
    # Trained on types 0, 0, 1 (label 0) and 2 (label 1); type 3 is new.
    found = baselines(examples, splits_of(examples, 2))
    assert found["majority"]["accuracy"].mean() == 0.25
    assert found["word types"]["accuracy"].mean() == 0.25  # 1: type 2; 0: types 1, 2, 3
    no_types = baselines(EXAMPLES, splits_of(EXAMPLES, 3))
    assert no_types.keys() == {"majority", "word types"}
    texts = make_examples(labels, {0: np.zeros((8, 1))}, level="sequence")
    assert baselines(texts, splits_of(texts, 2)).keys() == {"majority"}


def test_a_text_and_its_copies_are_on_one_side():
    splits = splits_of(EXAMPLES, 4)
    assert sorted(np.concatenate([s.tests[0] for s in splits])) == list(range(48))
    for train, (test,) in splits:
        assert not set(TEXTS[train]) & set(TEXTS[test])
        assert len(train) + len(test) == 48


def test_test_examples_are_scored_in_parts_by_one_classifier():
    is_test = TEXTS >= 8
    examples = make_examples(LABELS, {0: VECTORS}, types=TYPES, texts=TEXTS, is_test=is_test)
    ((train, tests),) = splits_of(examples, 3)
    assert set(train) == set(np.flatnonzero(~is_test))
    assert sorted(np.concatenate(tests)) == list(np.flatnonzero(is_test))
    score = score_all(examples, folds=3, metric="accuracy").scores[0]
    wanted = plain_scores(LABELS, [(train, test) for test in tests])
    np.testing.assert_allclose(score.folds, wanted["accuracy"])
    assert score.code.ends[-1] == len(train)
