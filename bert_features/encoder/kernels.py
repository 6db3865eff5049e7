"""Operations in the forms that a backend fuses best.

TensorFlow's graph rewrites for CPUs (Grappler's remapper and oneDNN) know a few patterns. Anything
else runs as a chain of operations, each a pass over memory. The forms here match the patterns;
benchmarks/diary.md has the gains. `lanes` has attention for TPUs.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `N` rows.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import keras
from keras import ops

from bert_features.config.bert_config import HiddenAct
from bert_features.encoder.forms import Forms, chosen_forms
from bert_features.encoder.types import Tensor

_Operation = TypeVar("_Operation", bound=Callable[..., Any])

# Added to the scores of masked positions. -10000, not -inf: the checkpoints were trained with it,
# and rows without any real token stay finite.
MASK_BIAS = -10000.0

ACTIVATIONS: dict[HiddenAct, Callable[[Tensor], Tensor]] = {
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}
# The same as part of a product of oneDNN, as far as it knows them.
_ONEDNN_ACTIVATIONS: dict[HiddenAct, bytes] = {
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
        rounded_once = tf.cast(tf.nn.softmax(scores), tf.bfloat16)
        return "onednn" if bool(tf.reduce_all(got == rounded_once)) else "plain"


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


def _rounded_once(num_arrays: int) -> Callable[[_Operation], _Operation]:
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


@_rounded_once(2)
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
    fused = activation in _ONEDNN_ACTIVATIONS and not _needs_float32(x)
    if chosen_forms().fixed_weights and fused:
        return _dense_of_fixed_weights(x, weight, bias, activation, residual)
    product = _activated(x, weight, bias, activation)
    return product if residual is None else residual + product


@_rounded_once(3)
def _activated(x: Tensor, weight: Tensor, bias: Tensor, activation: HiddenAct) -> Tensor:
    return ACTIVATIONS[activation](add_bias(ops.matmul(x, weight), bias))


@_rounded_once(1)
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
    if name := _ONEDNN_ACTIVATIONS[activation]:
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


@_rounded_once(3)
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Layer normalisation (Ba et al. 2016, arXiv:1607.06450) over the last axis.

    [N, H] or [B, S, H], the scale [H], the offset [H] if there is one -> the shape and dtype of x.
    It is computed in float32 for any dtype.
    """
    # Without an offset the rewrite does not know the form, and oneDNN's batch norm itself writes
    # outside its memory (TensorFlow 2.20).
    if chosen_forms().on_cpu and not chosen_forms().few_tokens and beta is not None:
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


def _onednn_layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Layer norm as a batch norm where every row is a channel; it becomes one kernel.

    It is the form of the Keras 2 layer, and the only one that the remapper of TensorFlow 2.20
    knows. Where the rewrite is off, TensorFlow computes it as written, with the same results.
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

    # As integers, which oneDNN leaves to TensorFlow: 20 us instead of 90 for a short sentence.
    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32), axes), x.dtype)


@_rounded_once(2)
def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, nearness: Tensor | None = None
) -> Tensor:
    """Softmax of the scaled scores, without masked positions.

    Args:
      query: [B, A, S, D], or [B, S, D] for a single head.
      key: the same shape.
      mask: int32 [B, S], 1 = real; or [B, S, S], 1 = this query attends to this key; None if all
        are real and the scale is part of the query.
      scale: factor of the scores.
      nearness: added to the scaled scores, see `RelativeBias`: [A, S, S], or [S, S] of one head.

    Returns:
      [B, A, S, S] or [B, S, S] of the dtype of `query`. The softmax is computed in float32; on a
      CPU by oneDNN's kernel, whose input has the dtype of `query`.
    """
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    if mask is None:
        return ops.softmax(_with(nearness, scores), axis=-1)
    # On a CPU the factor and the bias fuse with the product. Elsewhere the casts cost nothing,
    # because the compiler fuses them.
    dtype = scores.dtype if chosen_forms().on_cpu else "float32"
    # `where`, not a product: with two products to add, the rewrite may fuse the wrong one.
    bias = ops.where(mask > 0, ops.cast(0.0, dtype), ops.cast(MASK_BIAS, dtype))
    # TensorFlow Lite has no `[:, None]`; so `pooling` does the same.
    bias = ops.expand_dims(bias, (1, 2)[: len(query.shape) - len(mask.shape)])
    scores = ops.cast(scores, dtype) * ops.cast(scale, dtype) + bias
    return ops.cast(ops.softmax(_with(nearness, scores), axis=-1), query.dtype)


def _with(nearness: Tensor | None, scores: Tensor) -> Tensor:
    """The sum, of the dtype of the scores; the scores themselves if there is nothing to add."""
    return scores if nearness is None else scores + ops.cast(nearness, scores.dtype)


@_rounded_once(3)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    nearness: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762): [B, A, S, D] each.

    Mask, scale and nearness are those of `attention_weights`.
    """
    return ops.matmul(attention_weights(query, key, mask, scale, nearness), value)


@_rounded_once(3)
def attend_by_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    nearness: Tensor | None = None,
) -> Tensor:
    """As `attend`, head by head, so that each operation finds its input in a CPU's caches.

    [A, B, S, D] each -> [B, S, A * D]: with the heads first they are taken apart without a copy,
    and put together by the one copy that their transposition would take. Rows without padding, as
    those of texts that are cut, need no pass over the scores for mask and scale.
    """
    by_head = _traced_by_head(chosen_forms())
    if len(mask.shape) > 2:
        return by_head(query, key, value, mask, scale, nearness)
    import tensorflow as tf

    return tf.cond(
        tf.reduce_all(mask > 0),
        lambda: by_head(query * ops.cast(scale, query.dtype), key, value, None, 1.0, nearness),
        lambda: by_head(query, key, value, mask, scale, nearness),
    )


@functools.cache
def _traced_by_head(forms: Forms) -> Callable[..., Tensor]:
    """A graph function for these forms, which all layers share: tracing each takes 0.1 s."""
    import tensorflow as tf

    del forms
    return cast(Callable[..., Tensor], tf.function(_attend_by_head, autograph=False))


def _attend_by_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    nearness: Tensor | None,
) -> Tensor:
    if mask is not None and not chosen_forms().narrow:
        # Of four dimensions, so that TensorFlow fuses scale and mask with the product of the
        # scores. With AVX2 alone the fused product is slower than the three operations.
        query, key, value = (ops.expand_dims(x, 2) for x in (query, key, value))
    heads = zip(*(ops.unstack(x, x.shape[0]) for x in (query, key, value)), strict=True)
    count = query.shape[0]
    of_heads = [None] * count if nearness is None else ops.unstack(nearness, count)
    contexts = [
        ops.matmul(attention_weights(q, k, mask, scale, near), v)
        for (q, k, v), near in zip(heads, of_heads, strict=True)
    ]
    context = ops.concatenate(contexts, axis=-1)
    return context if len(context.shape) == 3 else ops.squeeze(context, 1)
