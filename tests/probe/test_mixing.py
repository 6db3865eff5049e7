"""The learned mix of layers: its loss by float64, and what it finds."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

from bert_features.probe.mixing import _Loss, fit_mix

GENERATOR = np.random.default_rng(0)
LABELS = np.array([0, 1, 2] * 40)
NOISE = [GENERATOR.normal(size=(120, 4)).astype(np.float32) for _ in range(3)]
TRAIN = np.arange(90)


def plain_loss(values, layers):
    """The loss from its definition, with the mixed vectors."""
    mix = np.exp(values[:3]) / np.exp(values[:3]).sum()
    rest = values[3:].reshape(3, 5)
    standard = [
        (np.float64(x) - x[TRAIN].mean(0)) / x[TRAIN].astype(np.float64).std(0) for x in layers
    ]
    mixed = sum(w * x for w, x in zip(mix, standard, strict=True))[TRAIN]
    mixed /= np.sqrt((mixed**2).mean())
    logits = mixed @ rest[:, :4].T + rest[:, 4]
    chosen = logits[np.arange(90), LABELS[TRAIN]]
    losses = np.log(np.exp(logits).sum(1)) - chosen
    return losses.mean() + (rest[:, :4] ** 2).sum() / 2 / 90


def test_the_loss_and_its_gradient_are_those_of_the_definition():
    loss = _Loss(NOISE, LABELS, 3, TRAIN)
    values = GENERATOR.normal(size=3 + 15)
    assert loss(values)[0] == pytest.approx(plain_loss(values, NOISE), rel=1e-5)
    difference = check_grad(lambda v: plain_loss(v, NOISE), lambda v: loss(v)[1], values)
    assert difference < 1e-5


@pytest.mark.parametrize("informed", [0, 2])
def test_the_layer_that_knows_the_labels_gets_the_weight(informed):
    layers = list(NOISE)
    layers[informed] = NOISE[informed] + 3 * np.eye(3, 4, dtype=np.float32)[LABELS]
    weights, predicted = fit_mix(layers, LABELS, 3, TRAIN)
    assert weights.sum() == pytest.approx(1)
    assert weights.argmax() == informed
    assert weights[informed] > 0.9
    assert (predicted[90:] == LABELS[90:]).mean() > 0.85


def test_the_mix_of_equal_layers_is_the_probe_of_one():
    layer = NOISE[0] + np.eye(3, 4, dtype=np.float32)[LABELS]
    weights, predicted = fit_mix([layer, layer], LABELS, 3, TRAIN)
    assert weights.tolist() == pytest.approx([0.5, 0.5])
    standard = (layer - layer[TRAIN].mean(0)) / layer[TRAIN].std(0)
    classifier = LogisticRegression().fit(standard[TRAIN], LABELS[TRAIN])
    assert (predicted == classifier.predict(standard)).mean() > 0.98
