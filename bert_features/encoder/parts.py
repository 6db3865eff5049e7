"""The layers that a BERT encoder is made of, each with its weights from the beginning.

Shape legend: `N` rows, `H` hidden_size.
"""

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import keras
import numpy as np
from keras import ops

from bert_features.config.bert_config import BertConfig, HiddenAct
from bert_features.encoder import kernels
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError, ConfigError

# Each variable with the canonical names of the weights joined along its last axis.
Table: TypeAlias = list[tuple[keras.Variable, list[str]]]


class Layer(keras.layers.Layer):
    """What the layers of this package have in common.

    A layer is trained where a weight of it is. Keras asks for the layer's own setting instead:
    the one block that is trained of a frozen layer would not be among its trainable weights.
    """

    @property
    def trainable(self) -> bool:
        """Whether any of its weights is trained."""
        return any(weight.trainable for weight in self.weights)

    @trainable.setter
    def trainable(self, value: Any) -> None:
        self._train(value)

    def _train(self, value: Any) -> None:
        keras.layers.Layer.trainable.fset(self, value)

    @property
    def dtype_policy(self) -> Any:
        """The dtypes of weights and arithmetic, fixed when the layer is made."""
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        if (policy := keras.dtype_policies.get(value)) != self._dtype_policy:
            raise ConfigError(
                f"dtype_policy is {self._dtype_policy.name} since {self.name} was made; pass "
                f"dtype='{policy.name}' when you make the layer"
            )

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras', where a RematScope names the layer; keywords need not be arrays.

        The state of dropout is an argument: computed again, a layer drops the same values.
        """
        variables = self.variables
        results: list[Any] = []
        seeds = [each for each in variables if each.dtype == "uint32"]

        def pure(values: list[Tensor], *args: Any) -> list[Tensor]:
            with keras.StatelessScope(zip(variables, values, strict=True)) as scope:
                results[:] = [layer_call(*args, **kwargs)]
            flat = keras.tree.flatten(results)
            return [each for each in flat if each is not None] + [
                scope.get_current_value(seed) for seed in seeds
            ]

        again = super().rematerialized_call(pure, [], *args)
        if again is pure or self._remat_mode.mode == "activations":
            return layer_call

        def call(*args: Any, **_: Any) -> Any:
            values = again([ops.convert_to_tensor(each) for each in variables], *args)
            for seed in reversed(seeds):
                seed.assign(values.pop())
            rest = [None if each is None else values.pop(0) for each in keras.tree.flatten(results)]
            return keras.tree.pack_sequence_as(results, rest)[0]

        return call

    def tracked(self, layers: list[Any]) -> list[Any]:
        """Makes layers attributes too: Keras hides a list of layers from `tf.train.Checkpoint`."""
        for layer in layers:
            setattr(self, layer.name, layer)
        return layers


class Part(Layer):
    """A layer that creates its weights when it is made, by the initialiser of its encoder."""

    def __init__(self, initializer: keras.initializers.Initializer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initializer = initializer

    @classmethod
    def named(cls, *args: Any, name: str, **kwargs: Any) -> Self:
        """Makes it, and its own parts in its name scope: each weight has a path of its own."""
        with keras.name_scope(name):
            return cls(*args, name=name, **kwargs)

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

    def __init__(self, config: BertConfig, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = config.layer_norm_eps
        self.gamma = self.vector("gamma", size, "ones")
        self.beta = self.vector("beta", size) if config.has_biases else None

    def call(self, x: Tensor) -> Tensor:
        """[…, H] -> […, H]."""
        return kernels.layer_norm(x, self.gamma, self.beta, self.epsilon)

    def table(self, scope: str) -> Table:
        """Its variables with the canonical names of their weights."""
        table: Table = [(self.gamma, [f"{scope}/gamma"])]
        return table if self.beta is None else [*table, (self.beta, [f"{scope}/beta"])]


class Dense(Part):
    """x W + b, then the activation, and a residual if there is one."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: HiddenAct = "linear",
        *,
        has_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.activation: HiddenAct = activation
        self.weight = self.kernel("kernel", inputs, outputs)
        self.bias = self.vector("bias", outputs) if has_bias else None

    def call(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[N, inputs], [N, outputs] -> [N, outputs]."""
        return kernels.dense(x, self.weight, self.bias_for(x), self.activation, residual)

    def bias_for(self, x: Tensor) -> Tensor:
        """The bias [outputs]; without one zeros of the dtype of x, which compilers leave out."""
        return ops.zeros((self.weight.shape[1],), x.dtype) if self.bias is None else self.bias

    def table(self, *scopes: str) -> Table:
        """Its variables with the canonical names of the weights joined along their last axis."""
        table: Table = [(self.weight, [f"{scope}/kernel" for scope in scopes])]
        if self.bias is not None:
            table.append((self.bias, [f"{scope}/bias" for scope in scopes]))
        return table


# The classes of an encoder's dense layers: of all in blocks, and of those that end a feed-forward
# part.
DENSE: tuple[type[Dense], type[Dense]] = (Dense, Dense)


def load_weights(table: Table, weights: Mapping[str, np.ndarray]) -> None:
    """Assigns weights by canonical name; raises CheckpointError as `load_weights_dict`.

    Those of integers are left to `encoder.int8`.
    """
    for variable, names in table:
        missing = [name for name in names if name not in weights]
        if missing:
            raise CheckpointError(f"weights lack {', '.join(missing)}; pass all")
        # A copy, also of one: JAX would take the memory of an array, which may be a file's.
        value = np.concatenate([weights[name] for name in names], axis=-1)
        if value.shape != tuple(variable.shape):
            raise CheckpointError(
                f"{' + '.join(names)} is {value.shape}; this config needs {variable.shape}"
            )
        if variable.dtype != "int8":
            variable.assign(value)


def make_dropout(rate: float, dtype: Any) -> keras.layers.Dropout | None:
    """A dropout layer, None for a rate of 0."""
    # With the dtype of its layer: Keras' global dtype would widen narrower values.
    return keras.layers.Dropout(rate, dtype=dtype) if rate else None
