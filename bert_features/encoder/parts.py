"""The layers that a BERT encoder is made of, each with its weights from the beginning.

Shape legend: `N` rows, `H` hidden_size.
"""

from typing import Any, TypeAlias

import keras

from bert_features.config.bert_config import HiddenAct
from bert_features.encoder import kernels
from bert_features.encoder.types import Tensor

# Each variable with the canonical names of the weights joined along its last axis.
Table: TypeAlias = list[tuple[keras.Variable, list[str]]]


class Part(keras.layers.Layer):
    """A layer that creates its weights when it is made, by the initialiser of its encoder."""

    def __init__(self, initializer: keras.initializers.Initializer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initializer = initializer

    def build(self, *shapes: Any) -> None:
        """Does nothing, as all weights exist; without it Keras would call the layer to find out."""

    def kernel(self, name: str, *shape: int) -> keras.Variable:
        """A new weight, by the layer's initialiser."""
        return self.add_weight(name=name, shape=shape, initializer=self.initializer)

    def vector(self, name: str, size: int, initializer: str = "zeros") -> keras.Variable:
        """A new weight [size]."""
        return self.add_weight(name=name, shape=(size,), initializer=initializer)


class LayerNorm(Part):
    """Layer normalisation over the last axis, always computed in float32."""

    def __init__(self, size: int, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.gamma = self.vector("gamma", size, "ones")
        self.beta = self.vector("beta", size)

    def call(self, x: Tensor) -> Tensor:
        """[…, H] -> […, H]."""
        return kernels.layer_norm(x, self.gamma, self.beta, self.epsilon)

    def table(self, scope: str) -> Table:
        """Its variables with the canonical names of their weights."""
        return [(self.gamma, [f"{scope}/gamma"]), (self.beta, [f"{scope}/beta"])]


class Dense(Part):
    """x W + b, then the activation, and a residual if there is one."""

    def __init__(
        self, inputs: int, outputs: int, activation: HiddenAct = "linear", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.activation: HiddenAct = activation
        self.weight = self.kernel("kernel", inputs, outputs)
        self.bias = self.vector("bias", outputs)

    def call(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[N, inputs], [N, outputs] -> [N, outputs]."""
        return kernels.dense(x, self.weight, self.bias, self.activation, residual)

    def table(self, *scopes: str) -> Table:
        """Its variables with the canonical names of the weights joined along their last axis."""
        return [
            (self.weight, [f"{scope}/kernel" for scope in scopes]),
            (self.bias, [f"{scope}/bias" for scope in scopes]),
        ]


def make_dropout(rate: float, dtype: Any) -> keras.layers.Dropout | None:
    """A dropout layer, None for a rate of 0."""
    # With the dtype of its layer: Keras' global dtype would widen narrower values.
    return keras.layers.Dropout(rate, dtype=dtype) if rate else None
