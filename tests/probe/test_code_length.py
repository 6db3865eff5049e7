"""The online code length of labels against a loop of its own, in float64."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bert_features.probe.code_length import PORTIONS, online_code, portions_of

GENERATOR = np.random.default_rng(0)
LABELS = GENERATOR.integers(0, 3, 400)
VECTORS = (GENERATOR.normal(size=(400, 6)) + 2 * LABELS[:, None]).astype(np.float32)


def plain_bits(vectors, labels, order, ends):
    """The bits of each portion: uniform, then by a classifier with one more of each class."""
    vectors, labels = np.float64(vectors)[order], labels[order]
    bits = [ends[0] * np.log2(3)]
    for begin, end in pairwise(ends):
        probabilities = np.zeros((end - begin, 3))
        if len(seen := np.unique(labels[:begin])) > 1:
            mean, deviation = vectors[:begin].mean(0), vectors[:begin].std(0)
            classifier = LogisticRegression(max_iter=3000)
            classifier.fit((vectors[:begin] - mean) / deviation, labels[:begin])
            answers = classifier.predict_proba((vectors[begin:end] - mean) / deviation)
            probabilities[:, classifier.classes_] = answers
        else:
            probabilities[:, seen] = 1
        smoothed = (begin * probabilities + 1) / (begin + 3)
        bits.append(-np.log2(smoothed[np.arange(end - begin), labels[begin:end]]).sum())
    return bits


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_the_code_is_that_of_a_loop_over_the_portions():
    order, ends = portions_of(np.arange(400))
    code = online_code(VECTORS, LABELS, 3, order, ends)
    wanted = plain_bits(VECTORS, LABELS, order, ends.tolist())
    np.testing.assert_allclose(code.bits, wanted, rtol=0.02)
    assert code.compression == pytest.approx(400 * np.log2(3) / sum(wanted), rel=0.02)
    assert code.compression > 3
    assert code.converged


def test_frequencies_are_coded_by_laplaces_rule():
    order, ends = portions_of(np.arange(400))
    code = online_code(VECTORS, LABELS, 3, order, ends)
    coded = LABELS[order]
    begin, end = ends[-2:]
    counts = np.bincount(coded[:begin], minlength=3)
    wanted = -np.log2((counts + 1) / (begin + 3))[coded[begin:end]].sum()
    assert code.frequencies[-1] == pytest.approx(wanted)
    assert code.compression_by_frequencies == pytest.approx(1, abs=0.05)


def test_portions_are_the_papers_and_end_with_a_text():
    order, ends = portions_of(np.arange(10_000))
    assert ends.tolist() == [round(percent * 100) for percent in PORTIONS]
    assert sorted(order) == list(range(10_000))
    texts = np.repeat(np.arange(100), 5)
    order, ends = portions_of(texts)
    assert ends[-1] == 500
    assert set(ends % 5) == {0}
    assert (np.diff(texts[order]) != 0).sum() == 99  # texts stay whole
    assert (np.diff(order) != 1).sum() > 50  # and come at random
    np.testing.assert_array_equal(portions_of(texts + 7)[0], order)


def test_labels_without_information_are_not_compressed():
    for seed in range(5):
        labels = np.random.default_rng(seed).permutation(np.arange(300) % 3)
        code = online_code(VECTORS[:300], labels, 3, *portions_of(np.arange(300)))
        assert code.compression <= 1.05


def test_a_class_that_was_not_seen_is_possible():
    labels = np.array([0] * 200 + [1] * 200)
    code = online_code(VECTORS, labels, 2, np.arange(400), np.array([100, 200, 400]))
    assert code.bits.tolist() == pytest.approx(
        [100, 100 * -np.log2(101 / 102), 200 * -np.log2(1 / 202)]
    )
