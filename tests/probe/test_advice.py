"""Which layer is recommended, and when none is."""

import math

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from bert_features.probe.advice import advise, differ
from bert_features.probe.classifier import probabilities
from bert_features.probe.scores import Scores, baselines, evaluate, splits_of
from tests.probe.examples import make_examples, make_score, make_scores


def test_the_test_for_folds_is_that_of_nadeau_and_bengio():
    better, worse = np.array([0.9, 0.8, 1.0, 0.9, 0.8]), np.array([0.6, 0.7, 0.7, 0.8, 0.7])
    worse = worse - 0.1
    difference = better - worse
    statistic = difference.mean() / math.sqrt((1 / 5 + 1 / 4) * difference.var(ddof=1))
    p = 2 * stats.t.sf(statistic, 4)
    assert differ(better, worse) == (p < 0.05)
    found = [differ(better, worse, comparisons) for comparisons in range(1, 30)]
    assert found == [p < 0.05 / comparisons for comparisons in range(1, 30)]
    assert {*found} == {True, False}
    assert differ(better, worse - 0.3)
    assert not differ(better, better)
    assert differ(better, better - 0.1)  # the same in each fold
    assert not differ(np.array([0.4, 0.6, 0.5]), 0.5)


LOW = make_score("embeddings", "mean", 0.5, 0.52, 0.48, 0.5)
BEST = make_score(1, "mean", 0.94, 0.96, 0.9, 1.0)


def test_the_simplest_within_one_standard_error_is_recommended():
    close = make_score(0, "cls", 0.93, 0.95, 0.9, 0.99)
    found = advise(make_scores([LOW, close, BEST], word_types=0.6))
    assert (found.best, found.choice) == (BEST, close)
    assert found.sentence == (
        "Use layer 0, cls (0.942 ± 0.019): within one standard error of the highest, layer 1, mean "
        "(0.950 ± 0.021), and needs fewer layers. Every simpler one is distinguishably lower (4 "
        "folds). The score is accuracy; baselines have 0.500 (majority) and 0.600 (word types)."
    )


def test_what_it_means_that_the_embeddings_win_is_said():
    found = advise(make_scores([make_score("embeddings", "mean", *BEST.folds), BEST]))
    assert found.choice.layer == "embeddings"
    assert "the words alone, or their places, predict these labels" in found.sentence
    assert "embeddings" not in advise(make_scores([BEST])).sentence


def test_a_layer_that_is_no_better_than_word_types_is_doubted():
    found = advise(make_scores([BEST], word_types=0.95))
    assert found.choice is BEST
    assert found.sentence.endswith("No layer is distinguishably better than word types.")


def test_a_simpler_one_that_may_be_as_good_is_named():
    doubtful = make_score(0, "mean", 1.0, 0.7, 0.6, 1.0)
    found = advise(make_scores([LOW, doubtful, BEST]))
    assert found.choice is BEST
    assert (
        "With 4 folds even layer 0, mean (0.825 ± 0.103) is not distinguishable from the highest; "
        "more texts would show whether it is as good."
    ) in found.sentence


def test_the_best_of_many_must_exceed_chance_by_more():
    better = make_score(1, "mean", 0.61, 0.56, 0.6, 0.58)
    chance = make_score(0, "mean", 0.5, 0.52, 0.48, 0.5)
    assert advise(make_scores([better])).choice is better
    assert advise(make_scores([*[chance] * 19, better])).choice is None


def test_of_equal_scores_the_first_is_the_best():
    again = make_score(2, "mean", *BEST.folds[::-1])
    assert advise(make_scores([LOW, BEST, again])).best is BEST


def test_a_layer_of_higher_selectivity_is_named_with_how_to_weigh_it():
    """Selectivities 0.95 - 0.6 and 0.94 - 0.25. That of the highest score needs no more words."""
    remembers = make_score(0, "mean", *BEST.folds, control=0.6)
    knows = make_score(1, "cls", 0.93, 0.95, 0.9, 0.98)
    found = advise(make_scores([remembers, knows]))
    assert (found.best, found.choice) == (remembers, remembers)
    assert found.sentence.endswith(
        " Selectivity, what the score exceeds that of random labels by, is 0.350 there and highest "
        "at layer 1, cls: 0.690. Weigh the score to predict these labels, selectivity to say what "
        "the layer itself knows."
    )
    assert "electivity" not in advise(make_scores([knows, remembers])).sentence


def test_chance_is_not_recommended():
    noise = make_score(1, "mean", 0.4, 0.6, 0.5, 0.6, metric="balanced_accuracy")
    found = advise(make_scores([noise]))
    assert (found.best, found.choice) == (noise, None)
    assert found.sentence.startswith(
        "No layer carries more than chance with 4 folds: the highest score is layer 1, mean (0.525 "
        "± 0.048). The score is balanced accuracy; baselines have 0.500 (majority)."
    )


@pytest.mark.slow
@pytest.mark.release
def test_shuffled_labels_are_called_chance():
    generator = np.random.default_rng(0)
    layers = [generator.normal(size=(80, 4)).astype(np.float32) for _ in range(2)]
    chosen = 0
    for _ in range(100):
        examples = make_examples(generator.permutation(np.arange(80) % 2), {})
        splits = splits_of(examples, 5)
        scores = []
        for layer, vectors in enumerate(layers):
            found = [np.zeros(80) for _ in splits]
            for predicted, (train, (test,)) in zip(found, splits, strict=True):
                with threadpool_limits(1):
                    answers, _ = probabilities(vectors, examples.labels, 2, train, test)
                predicted[test] = answers.argmax(1)
            accuracy = evaluate(examples.labels, splits, found)["accuracy"]
            scores.append(make_score(layer, "mean", *accuracy))
        found = Scores(scores, baselines(examples, splits), None)
        chosen += advise(found).choice is not None
    assert chosen <= 5
