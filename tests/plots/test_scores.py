"""Scores of the probe against loops of their own, and what is recommended."""

import math

import numpy as np
import pytest
from scipy import stats

from bert_features.plots.scores import Score, chance_level, cross_validate, differ, recommend

GENERATOR = np.random.default_rng(0)
LABELS = list("xyz" * 10)
CENTRES = {"x": 0.0, "y": 1.0, "z": 2.0}
VECTORS = GENERATOR.normal(size=(30, 5)) + [[CENTRES[label]] * 5 for label in LABELS]


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_scores_are_those_of_a_loop_over_the_folds(metric):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    wanted = []
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(VECTORS, LABELS)
    for train, test in folds:
        mean, deviation = VECTORS[train].mean(0), VECTORS[train].std(0)
        classifier = LogisticRegression(max_iter=3000)
        classifier.fit((VECTORS[train] - mean) / deviation, np.array(LABELS)[train])
        right = classifier.predict((VECTORS[test] - mean) / deviation) == np.array(LABELS)[test]
        of_class = [right[np.array(LABELS)[test] == label].mean() for label in "xyz"]
        wanted.append(right.mean() if metric == "accuracy" else np.mean(of_class))
    (score,) = cross_validate({(0, "mean"): VECTORS}, LABELS, folds=3, metric=metric)
    np.testing.assert_allclose(score.folds, wanted)
    assert 0.5 < score.mean < 1
    assert score.error == pytest.approx(stats.sem(wanted))


def test_a_classifier_that_does_not_converge_is_one_log_line(monkeypatch, caplog):
    monkeypatch.setattr("bert_features.plots.scores._MAX_ITERATIONS", 1)
    cross_validate({(2, "cls"): VECTORS}, LABELS, folds=3, metric="accuracy")
    (record,) = caplog.records
    assert record.getMessage().startswith("layer 2, cls: the classifier did not converge in 1 iter")


def test_the_chance_level_is_that_of_the_most_frequent_label():
    assert chance_level(list("aaab"), "accuracy") == 0.75
    assert chance_level(list("aaab"), "balanced_accuracy") == 0.5


def test_the_test_for_folds_is_that_of_nadeau_and_bengio():
    better, worse = np.array([0.9, 0.8, 1.0, 0.9, 0.8]), np.array([0.6, 0.7, 0.7, 0.8, 0.7])
    difference = better - worse
    statistic = difference.mean() / math.sqrt((1 / 5 + 1 / 4) * difference.var(ddof=1))
    significant = 2 * stats.t.sf(statistic, 4) < 0.05
    assert differ(better, worse) == significant
    assert differ(better, worse - 0.3)
    assert not differ(better, better)
    assert differ(better, better - 0.1)  # the same in each fold
    assert not differ(np.array([0.4, 0.6, 0.5]), 0.5)


def score(layer, pooling, *folds):
    return Score(layer, pooling, np.array(folds))


LOW = score("embeddings", "mean", 0.5, 0.52, 0.48, 0.5)
BEST = score(1, "mean", 0.94, 0.96, 0.9, 1.0)


def test_the_simplest_within_one_standard_error_is_recommended():
    close = score(0, "cls", 0.93, 0.95, 0.9, 0.99)
    found = recommend([LOW, close, BEST], 0.5, "accuracy")
    assert (found.best, found.choice) == (BEST, close)
    assert found.sentence == (
        "Use layer 0, cls (0.942 ± 0.019): within one standard error of the highest, layer 1, mean "
        "(0.950 ± 0.021), and needs fewer layers; accuracy, chance level 0.500. Every simpler one "
        "is distinguishably lower (4 folds)."
    )


def test_what_it_means_that_the_embeddings_win_is_said():
    found = recommend([score("embeddings", "mean", *BEST.folds), BEST], 0.5, "accuracy")
    assert found.choice.layer == "embeddings"
    assert found.sentence.endswith(
        "The embeddings lie below layer 0 and contain no context: the words alone predict these "
        "labels, so counts of words may do as well, without BERT."
    )
    assert "embeddings" not in recommend([BEST], 0.5, "accuracy").sentence


def test_a_simpler_one_that_may_be_as_good_is_named():
    doubtful = score(0, "mean", 1.0, 0.7, 0.6, 1.0)
    found = recommend([LOW, doubtful, BEST], 0.5, "accuracy")
    assert found.choice is BEST
    assert found.sentence.endswith(
        "With 4 folds even layer 0, mean (0.825 ± 0.103) is not distinguishable from the highest; "
        "more texts would show whether it is as good."
    )


def test_of_equal_scores_the_first_is_the_best():
    again = score(2, "mean", *BEST.folds[::-1])
    assert recommend([LOW, BEST, again], 0.5, "accuracy").best is BEST


def test_chance_is_not_recommended():
    noise = score(1, "mean", 0.4, 0.6, 0.5, 0.6)
    found = recommend([LOW, noise], 0.5, "balanced_accuracy")
    assert (found.best, found.choice) == (noise, None)
    assert found.sentence.startswith(
        "No layer is distinguishable from chance with 4 folds: the highest score is layer 1, mean "
        "(0.525 ± 0.048), balanced accuracy, chance level 0.500."
    )
