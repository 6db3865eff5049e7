"""A learned mix of layers: a linear classifier on their weighted mean, trained with the weights.

The scalar mix of Peters et al., "Deep contextualized word representations" (2018), on standardised
layers. In place of its factor the mix has the mean variance of a layer, 1: else L2 would prefer a
single layer, since a mean of several varies less and needs larger coefficients.

Dimensions: `L` layers, `N` examples, `D` width of a vector, `K` classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_features.probe.classifier import MAX_ITERATIONS

_TOLERANCE = 1e-4  # of the gradient, as scikit-learn's


def fit_mix(
    layers: Sequence[np.ndarray], labels: np.ndarray, classes: int, train: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Trains the weights of layers, and a classifier on their mix.

    The loss is that of the probe: cross-entropy, and L2 with C = 1 on the coefficients.

    Args:
      layers: L times float32 [N, D].
      labels: int64 [N], from 0 to K - 1; those of training examples are used.
      classes: K.
      train: int64, the places of the training examples.

    Returns:
      float64 [L], the weights, which are positive with the sum 1; and int64 [N], the predictions.
    """
    from scipy.optimize import minimize

    loss = _Loss(layers, labels, classes, train)
    start = np.zeros(len(layers) + (layers[0].shape[1] + 1) * classes)
    options = {"maxiter": MAX_ITERATIONS, "gtol": _TOLERANCE, "ftol": 0, "maxls": 50}
    minimum = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    mix, coefficients, intercept = loss.parts(minimum.x)
    return mix, loss.logits(loss.scale(mix) * mix, coefficients, intercept).argmax(1)


class _Loss:
    """The loss and its gradient at some weights; examples without training have the weight zero."""

    def __init__(
        self, layers: Sequence[np.ndarray], labels: np.ndarray, classes: int, train: np.ndarray
    ) -> None:
        self._layers = layers
        self._means = [layer[train].mean(0, dtype=np.float64) for layer in layers]
        deviations = [layer[train].std(0, dtype=np.float64) for layer in layers]
        self._scales = [1 / np.where(each > 0, each, 1) for each in deviations]
        self._train = train
        self._targets = np.zeros((len(train), classes))
        self._targets[np.arange(len(train)), labels[train]] = 1
        self._shape = classes, layers[0].shape[1]
        self._covariances = self._find_covariances()

    def _find_covariances(self) -> np.ndarray:
        """float64 [L, L], of standardised layers the mean over the dimensions; a part at a time."""
        total = np.zeros((len(self._layers),) * 2)
        for part in np.array_split(self._train, len(self._train) // 1000 + 1):
            standard = np.stack(
                [(layer[part] - mean) * scale for _, layer, mean, scale in self._each(total[0])]
            ).reshape(len(total), -1)
            total += standard @ standard.T
        covariances: np.ndarray = total / (len(self._train) * self._shape[1])
        return covariances

    def parts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mix [L], the coefficients [K, D] and the intercept [K] in a flat vector."""
        count = len(self._layers)
        powers = np.exp(values[:count] - values[:count].max())
        rest = values[count:].reshape(self._shape[0], -1)
        return powers / powers.sum(), rest[:, :-1], rest[:, -1]

    def scale(self, mix: np.ndarray) -> float:
        """What a mix is multiplied by, so that its mean variance is 1."""
        return float((mix @ self._covariances @ mix) ** -0.5)

    def logits(
        self, weights: np.ndarray, coefficients: np.ndarray, intercept: np.ndarray
    ) -> np.ndarray:
        """float64 [N, K]; no mixed vector is made: layers are multiplied one by one."""
        total = np.zeros((len(self._layers[0]), self._shape[0]))
        for weight, layer, mean, scale in self._each(weights):
            scaled = coefficients * (weight * scale)
            total += layer @ scaled.astype(np.float32).T - scaled @ mean
        total += intercept
        return total

    def __call__(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss of the training examples, and its gradient."""
        mix, coefficients, intercept = self.parts(values)
        factor = self.scale(mix)
        logits = self.logits(factor * mix, coefficients, intercept)[self._train]
        logits -= logits.max(1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(1, keepdims=True))
        count = len(self._train)
        loss = -(self._targets * logits).sum() / count + 0.5 / count * (coefficients**2).sum()
        errors = np.zeros((len(self._layers[0]), self._shape[0]), np.float32)
        errors[self._train] = (np.exp(logits) - self._targets) / count
        sums = errors.sum(0, dtype=np.float64)
        slopes, of_weights = coefficients / count, np.empty(len(mix))
        for i, (weight, layer, mean, scale) in enumerate(self._each(factor * mix)):
            part = ((errors.T @ layer) - np.outer(sums, mean)) * scale
            slopes = slopes + weight * part
            of_weights[i] = (part * coefficients).sum()
        # The factor depends on the mix too.
        of_mix = factor * of_weights - factor**3 * (of_weights @ mix) * (self._covariances @ mix)
        gradient: Any = [mix * (of_mix - mix @ of_mix), np.c_[slopes, sums].ravel()]
        return float(loss), np.concatenate(gradient)

    def _each(self, weights: np.ndarray) -> Any:
        return zip(weights.tolist(), self._layers, self._means, self._scales, strict=True)
