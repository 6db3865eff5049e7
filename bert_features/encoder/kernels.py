"""Operations in the forms that a backend fuses best.

TensorFlow's graph rewrites for CPUs (Grappler's remapper and oneDNN) know a few patterns. Anything
else runs as a chain of operations, each a pass over memory. The forms here match the patterns;
benchmarks/diary.md has the gains. `attention` has the forms of attention.

Shape legend: `B` batch, `S` sequence, `H` hidden, `N` rows.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import keras
from keras import ops

from bert_features.config.bert_config import HiddenAct
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.types import Tensor

_Operation = TypeVar("_Operation", bound=Callable[..., Any])

ACTIVATIONS: dict[HiddenAct, Callable[[Tensor], Tensor]] = {
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}
# The same as part of a product of oneDNN, as far as it knows them.
ONEDNN_ACTIVATIONS: dict[HiddenAct, bytes] = {
    "gelu_erf": b"GeluExact",
    "gelu_tanh": b"GeluApproximate",
    "relu": b"Relu",
    "tanh": b"Tanh",
    "linear": b"",
}


@functools.cache
def bfloat16_products() -> Literal["onednn", "plain", "refused"]:
    """How TensorFlow computes in bfloat16 on this CPU, found with a small softmax.

    Returns:
      `onednn`: oneDNN's kernels compute in bfloat16 with float32 inside. `plain`: oneDNN is off or
      the CPU lacks AVX-512, and each operation rounds, sums included. `refused`: oneDNN is limited
      to a lower instruction set than the CPU has (ONEDNN_MAX_CPU_ISA), where a softmax raises an
      error and a matrix product ends the process.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        # 0 to 4 in steps that bfloat16 can hold: any difference comes from the softmax.
        scores = tf.range(256, dtype=tf.float32) / 64
        try:
            got = tf.nn.softmax(tf.cast(scores, tf.bfloat16))
        except tf.errors.OpError:
            return "refused"
        rounded = tf.cast(tf.nn.softmax(scores), tf.bfloat16)
        return "onednn" if bool(tf.reduce_all(got == rounded)) else "plain"


def _needs_float32(x: Tensor) -> bool:
    """Whether operations on x compute in float32 and round their result once.

    They do in bfloat16 on a CPU where oneDNN does not compute in it. In a user's own model, whose
    device is unknown, they do only where products of bfloat16 and float16 would fail.
    """
    if keras.backend.backend() != "tensorflow" or chosen_forms().on_tpu:
        return False
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype not in ("bfloat16", "float16"):
        return False
    if chosen_forms().on_cpu and dtype == "bfloat16":
        return bfloat16_products() != "onednn"
    return bfloat16_products() == "refused" and not _sees_gpu()


def _sees_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def rounded_once(num_arrays: int) -> Callable[[_Operation], _Operation]:
    """Makes an operation compute in float32 and round once, where `_needs_float32` says so.

    Its first `num_arrays` arguments are arrays of one dtype, or None.
    """

    def decorate(operation: _Operation) -> _Operation:
        @functools.wraps(operation)
        def run(*arguments: Any) -> Tensor:
            arrays, others = arguments[:num_arrays], arguments[num_arrays:]
            if not _needs_float32(arrays[0]):
                return operation(*arguments)
            wide = [None if array is None else ops.cast(array, "float32") for array in arrays]
            return ops.cast(operation(*wide, *others), arrays[0].dtype)

        return cast(_Operation, run)

    return decorate


@rounded_once(2)
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product of two arrays of one dtype, in that dtype."""
    return ops.matmul(x, y)


def dense(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: HiddenAct = "linear",
    residual: Tensor | None = None,
) -> Tensor:
    """The activation of x W + b, and a residual: [N, H], [H, M], [M], [N, M] -> [N, M]."""
    fused = activation in ONEDNN_ACTIVATIONS and not _needs_float32(x)
    if chosen_forms().fixed_weights and fused:
        return _dense_of_fixed_weights(x, weight, bias, activation, residual)
    product = _activated(x, weight, bias, activation)
    return product if residual is None else residual + product


@rounded_once(3)
def _activated(x: Tensor, weight: Tensor, bias: Tensor, activation: HiddenAct) -> Tensor:
    return ACTIVATIONS[activation](add_bias(ops.matmul(x, weight), bias))


@rounded_once(1)
def gated(x: Tensor, activation: HiddenAct) -> Tensor:
    """The activation of the first half times the second half: [N, 2 * I] -> [N, I]."""
    first, second = ops.split(x, 2, axis=-1)
    return ACTIVATIONS[activation](first) * second


def _dense_of_fixed_weights(
    x: Tensor, weight: Tensor, bias: Tensor, activation: HiddenAct, residual: Tensor | None
) -> Tensor:
    """As `dense`, by the operation that TensorFlow's rewrite makes of a product with a constant.

    At its first run oneDNN arranges the weight for its kernel and keeps that copy. A constant
    itself is no way: those of BERT-base take 3 GB for 0.34 GB of weights, and 9 s of CPU a trace.
    """
    import tensorflow as tf
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    arguments, fused = [tf.convert_to_tensor(bias, x.dtype)], [b"BiasAdd"]
    if name := ONEDNN_ACTIVATIONS[activation]:
        fused.append(name)
    elif residual is not None:  # one of the two can be part of the product
        arguments.append(residual)
        fused.append(b"Add")
    attributes = {
        "T": AttrValue(type=x.dtype.as_datatype_enum),
        "num_args": AttrValue(i=len(arguments)),
        "fused_ops": AttrValue(list=AttrValue.ListValue(s=fused)),
        "is_filter_const": AttrValue(b=True),
        "_kernel": AttrValue(s=b"MklNameChangeOp"),  # the label of oneDNN's kernels
    }
    inputs = [x, tf.convert_to_tensor(weight, x.dtype), *arguments]
    graph = tf.compat.v1.get_default_graph()
    product = graph.create_op(
        "_MklNativeFusedMatMul", inputs, [x.dtype], name="dense", attrs=attributes
    ).outputs[0]
    return product if residual is None or b"Add" in fused else residual + product


def rows(table: Tensor, numbers: Tensor) -> Tensor:
    """The rows of a table, [V, E] by [B, S] -> [B, S, E].

    The gradient of the reshape is dense. TensorFlow's Adam squares the rows of a sparse one before
    it adds those of equal numbers: tokens that repeat would move too far.
    """
    table = ops.reshape(table, (-1, table.shape[1]))
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, numbers, axis=0)
    import tensorflow as tf

    return tf.gather(table, numbers)  # refuses negative numbers, on a CPU, which Keras counts back


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """The sum of x [N, H] and a bias [H].

    As a BiasAdd, not the Add of `keras.ops`: the matrix product before it and the GELU after it
    fuse with a BiasAdd alone.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.bias_add(x, tf.convert_to_tensor(bias, x.dtype))
    return ops.add(x, bias)


def reshape_like(x: Tensor, like: Tensor) -> Tensor:
    """Gives x the shape of `like`, so that the sum of both fuses with the product before it.

    TensorFlow must know that both have the same shape, even where it does not know the shape.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reshape(x, tf.shape(like))
    return ops.reshape(x, ops.shape(like))


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Layer normalisation (Ba et al. 2016, arXiv:1607.06450) over the last axis.

    [N, H] or [B, S, H], the scale [H], the offset [H] if there is one -> the shape and dtype of x.
    It is computed in float32 for any dtype.
    """
    if beta is not None and _fuses_layer_norm(x):
        return _onednn_layer_norm(x, gamma, beta, epsilon)
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centred = wide - mean
    if chosen_forms().on_tpu and x.dtype != wide.dtype:
        # Both sums in one pass, together with the product that makes x. The cancellation in float32
        # loses far less than x lost when it was rounded.
        squares = ops.mean(ops.square(wide), axis=-1, keepdims=True)
        variance = ops.maximum(squares - ops.square(mean), 0.0)
    else:
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
    normal = centred * scale
    return ops.cast(normal if beta is None else normal + ops.cast(beta, "float32"), x.dtype)


def _fuses_layer_norm(x: Tensor) -> bool:
    """Whether `_onednn_layer_norm` becomes one kernel, given an offset.

    Where it does not, oneDNN's own batch norm may run, which writes outside its memory when two
    threads run it (TensorFlow 2.20). The rewrite knows no form with casts around it, and none of a
    known shape, as outside a graph: its vector of ones has become a constant.
    """
    forms = chosen_forms()
    may_fuse = forms.on_cpu and not forms.few_tokens and not _needs_float32(x)
    return may_fuse and not x.shape.is_fully_defined()


def _onednn_layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Layer norm as a batch norm where every row is a channel; it becomes one kernel.

    It is the form of the Keras 2 layer, and the only one that the remapper of TensorFlow 2.20
    knows.
    """
    import tensorflow as tf

    shape = tf.shape(x)
    rows = tf.reduce_prod(shape[:-1])
    none = tf.constant([], tf.float32)
    normal = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, [1, rows, x.shape[-1], 1]),
        scale=tf.fill([rows], 1.0),
        offset=tf.fill([rows], 0.0),
        mean=none,
        variance=none,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    ).y
    gamma, beta = (tf.convert_to_tensor(vector, x.dtype) for vector in (gamma, beta))
    return tf.reshape(normal, shape) * gamma + beta


def transpose(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """An array with its axes in another order."""
    if not chosen_forms().few_tokens or x.dtype != "float32":
        return ops.transpose(x, axes)
    import tensorflow as tf

    @tf.custom_gradient
    def transposed(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        # As integers, which oneDNN leaves to TensorFlow: 20 us instead of 90 for a short sentence.
        # They have no gradient, which official programs may ask for.
        result = tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32), axes), x.dtype)
        return result, lambda by_result: tf.transpose(by_result, tf.math.invert_permutation(axes))

    return transposed(x)
