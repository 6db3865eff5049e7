"""Dense layers of blocks in int8, on a CPU with TensorFlow: oneDNN's product of small integers.

Inputs become unsigned and weights signed integers of a byte. The ranges of the inputs are found
once, with an exact encoder and texts that never change; what is large in all inputs moves into the
weights before (SmoothQuant, Xiao et al. 2022, arXiv:2211.10438). The inputs of the layer that ends
a feed-forward part differ most from token to token, so there each token has a range. No vector
depends on its batch. benchmarks/diary.md has the trials.

Shape legend: `N` tokens, `K` inputs, `M` outputs.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, cast

import keras
import numpy as np

from bert_features.encoder import kernels
from bert_features.encoder.forms import chosen_forms, traced_for
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.parts import Dense
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError

# The exponent of SmoothQuant: 0.5 takes as much from the inputs as from the weights.
_SMOOTHING = 0.5
_MOST_STEPS = 255  # of an input
_MOST_WEIGHT = 127
# The ends of a range that are tried: shares of the least and the largest value.
_ENDS = np.linspace(0.3, 1, 71)
_BINS = 4096
# The ends are moved out by so much: other texts have larger values than those that were seen.
_MARGIN = 1.15
_TINY = 1e-30  # instead of 0, to divide by

_in_float32: ContextVar[bool] = ContextVar("in_float32", default=False)


class Int8Dense(Dense):
    """A dense layer whose inputs have one range.

    Attributes:
      needs_inputs: whether `take` looks at the inputs.
      weight: int8 [K, M].
      largest: float32 [M], what 127 stands for in each column of the weight.
      factors: float32 [K], steps of the range for each unit of an input.
      range: float32 [2], what the first and the last step stand for.
    """

    needs_inputs: ClassVar[bool] = True

    def __init__(self, inputs: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(inputs, *args, **kwargs)
        self.largest = self.vector("largest", self.weight.shape[1])
        self.factors = self.vector("factors", inputs)
        self.range = self.vector("range", 2)
        # The weight in float32, within `exact_products`, and the inputs, if they are to be kept.
        self.exact: np.ndarray | None = None
        self.seen: list[np.ndarray] | None = None

    def kernel(self, name: str, *shape: int) -> keras.Variable:
        """A new weight of integers."""
        zeros = {"initializer": "zeros", "trainable": False}
        return self.add_weight(name=name, shape=shape, dtype="int8", **zeros)

    def take(self, weight: np.ndarray, inputs: np.ndarray) -> None:
        """Takes its weight [K, M], and the range of inputs [N, K]."""
        # For each input, of all tokens and of all outputs.
        sizes = [np.maximum(np.abs(a).max(axis=i), _TINY) for i, a in ((0, inputs), (1, weight))]
        smooth = sizes[0] ** _SMOOTHING / sizes[1] ** (1 - _SMOOTHING)
        low, high = (_MARGIN * end for end in find_range(inputs / smooth))
        self.range.assign([low, high])
        self.factors.assign(_MOST_STEPS / (high - low) / smooth)
        self._take_integers(weight * smooth[:, None])

    def _take_integers(self, weight: np.ndarray) -> np.ndarray:
        """Takes the weight [K, M] as integers; returns what they stand for."""
        largest = np.maximum(np.abs(weight).max(axis=0), _TINY)
        integers = np.rint(weight * (_MOST_WEIGHT / largest))
        self.weight.assign(integers.astype(np.int8))
        self.largest.assign(largest)
        meant: np.ndarray = integers * (largest / _MOST_WEIGHT)
        return meant

    def call(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[N, K], [N, M] -> [N, M]."""
        if _in_float32.get():
            if self.seen is not None:
                self.seen.append(keras.ops.convert_to_numpy(x))
            return kernels.dense(x, self.exact, self.bias_for(x), self.activation, residual)
        product = self.in_integers(x)
        return product if residual is None else residual + product

    def in_integers(self, x: Tensor) -> Tensor:
        """The activation of x W + b."""
        import tensorflow as tf

        low, high = tf.unstack(tf.convert_to_tensor(self.range))
        # A cast cuts the fraction off, so half a step more rounds.
        steps = x * self.factors + (0.5 - low * _MOST_STEPS / (high - low))
        steps = tf.clip_by_value(steps, 0.0, _MOST_STEPS + 0.5)
        return self._product(steps, (low, high), self.bias_for(x), self.activation)

    def _product(
        self, steps: Tensor, ends: tuple[Tensor, Tensor], bias: Tensor, activation: Any = "linear"
    ) -> Tensor:
        """The activation of x W + b; 0 and 255 in `steps` [N, K] stand for the `ends` of x."""
        import tensorflow as tf

        name = kernels.ONEDNN_ACTIVATIONS.get(activation, b"").decode()
        largest = tf.convert_to_tensor(self.largest)
        integers = tf.bitcast(tf.cast(steps, tf.uint8), tf.quint8)
        weight = tf.bitcast(tf.convert_to_tensor(self.weight), tf.qint8)
        inputs = [integers, weight, tf.convert_to_tensor(bias), *ends, -largest, largest]
        if tf.executing_eagerly():
            product = _graph_of_product()(inputs, name)
        else:
            product = _multiply(inputs, name, fixed=chosen_forms().fixed_weights)
        is_done = name or activation == "linear"
        return product if is_done else kernels.ACTIVATIONS[activation](product)


class Int8DenseByToken(Int8Dense):
    """A dense layer, without an activation, whose inputs have a range for each token.

    Attributes:
      sums: float32 [M], the sums of the weight's columns.
    """

    needs_inputs: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sums = self.vector("sums", self.weight.shape[1])

    def take(self, weight: np.ndarray, inputs: np.ndarray) -> None:
        """Takes its weight [K, M]."""
        del inputs
        self.sums.assign(self._take_integers(weight).sum(axis=0))

    def in_integers(self, x: Tensor) -> Tensor:
        """The product and the bias."""
        import tensorflow as tf

        least = tf.reduce_min(x, axis=-1, keepdims=True)
        size = tf.maximum(tf.reduce_max(x, axis=-1, keepdims=True) - least, _TINY)
        factor = _MOST_STEPS / size
        steps = (x - least) * factor + 0.5
        ends = tf.constant(0.0), tf.constant(1.0)
        product = self._product(steps, ends, tf.zeros_like(self.sums))
        return product * size + least * self.sums + self.bias_for(x)


def _multiply(inputs: list[Tensor], activation: str, *, fixed: bool = False) -> Tensor:
    """The product of integers in a graph: see `Int8Dense._product` and `Forms.fixed_weights`."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_library  # the operation has no public name

    number = tf.float32
    (product,), _ = op_def_library.apply_op(
        "_QuantizedMatMul",
        name="int8",
        device_inputs=inputs[:3],
        host_inputs=inputs[3:],
        Tdevice_outputs=[number],
        Thost_outputs=[],
        **{"T1": tf.quint8, "T2": tf.qint8, "Tbias": number, "U": number, "Tout": number},
        **{"transpose_a": False, "transpose_b": False, "leakyrelu_alpha": 0.2},
        **{"is_weight_const": fixed, "is_bias_const": fixed},
        fused_ops=["BiasAdd", *([activation] if activation else []), "Dequantize"],
        input_quant_mode="MIN_FIRST",
        output_quant_mode="SCALED",
    )
    return product


@functools.cache
def _graph_of_product() -> Callable[[list[Tensor], str], Tensor]:
    """The product as a function for calls outside a graph, where the operation cannot be called."""
    import tensorflow as tf

    graph = tf.function(_multiply, autograph=False, reduce_retracing=True)
    return cast(Callable[[list[Tensor], str], Tensor], graph)


INT8_DENSE = (Int8Dense, Int8DenseByToken)  # for a `BertEncoder`


def quantize(
    encoder: BertEncoder, weights: Mapping[str, np.ndarray], batches: Iterable[Mapping[str, Any]]
) -> None:
    """Gives the dense layers of an encoder their weights.

    Args:
      encoder: one of INT8_DENSE, with all other weights.
      weights: by canonical name, as `read_weights` returns them.
      batches: inputs of the encoder, in which ranges are found. Padding counts as tokens do.

    Raises:
      CheckpointError: a weight, or an input of a layer, is NaN or infinite: no range holds it, and
        as an integer it would pass for a number.
    """
    for name, values in weights.items():
        _check_finite(values, f"the weight {name}")
    with exact_products(encoder, weights):
        for layer in _layers(encoder):
            layer.seen = [] if layer.needs_inputs else None
        for batch in batches:
            encoder(batch)
        for layer in _layers(encoder):
            assert layer.exact is not None
            inputs = np.concatenate(layer.seen or [np.zeros((0, len(layer.exact)))])
            _check_finite(inputs, f"an input of {layer.path}")
            layer.take(layer.exact, inputs)
            layer.exact = layer.seen = None


@contextlib.contextmanager
def exact_products(encoder: BertEncoder, weights: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Within it calls of this thread, outside a graph, compute in float32 with these weights."""
    names = {id(variable): names for variable, names in encoder.table()}
    layers = _layers(encoder)
    for layer in layers:
        first, *others = (weights[name] for name in names[id(layer.weight)])
        layer.exact = np.concatenate([first, *others], axis=-1) if others else first
    token = _in_float32.set(True)
    try:
        with traced_for("cpu"):
            yield
    finally:
        _in_float32.reset(token)
        for layer in layers:
            layer.exact = layer.seen = None


def _layers(encoder: BertEncoder) -> list[Int8Dense]:
    every = (layer for block in encoder.blocks for layer in block.dense_layers)
    return [layer for layer in every if isinstance(layer, Int8Dense)]


def _check_finite(values: np.ndarray, name: str) -> None:
    if not np.isfinite(values).all():
        raise CheckpointError(
            f"{name} has NaN or infinity, which int8 cannot hold; pass precision='float32'"
        )


def find_range(x: np.ndarray) -> tuple[float, float]:
    """The ends of the range in which the mean fourth power of the errors of x is least.

    Values outside are cut to the ends. Those inside are rounded to one of 256 steps; the fourth
    power of such an error is a 80th of a step's on average.
    """
    least, most = min(float(x.min()), -_TINY), max(float(x.max()), _TINY)
    counts, edges = np.histogram(x, _BINS, (least, most))
    values = (edges[1:] + edges[:-1]) / 2
    lows, highs = _ENDS * least, _ENDS * most
    below = [counts @ np.maximum(low - values, 0) ** 4 for low in lows]
    above = [counts @ np.maximum(values - high, 0) ** 4 for high in highs]
    steps = (highs - lows[:, None]) / _MOST_STEPS
    errors = np.add.outer(below, above) + x.size * steps**4 / 80
    i, j = np.unravel_index(errors.argmin(), errors.shape)
    return float(lows[i]), float(highs[j])
