"""Operations in the forms that a backend fuses best.

TensorFlow's graph rewrites for CPUs (Grappler's remapper and oneDNN) know a few patterns; what does
not match one runs as a chain of operations, each a pass over memory. The forms here match. What
that brought is in docs/performance.md.

XLA's compiler for TPUs fuses what it likes, but moves an array wherever the layout that one product
leaves it in is not the one that the next wants. What the forms for TPUs save is in docs/tpu.md.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `N` rows.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

import keras
from keras import ops

# Added to the scores of masked positions. -10000, not -inf: what the checkpoints were trained
# with; and rows without any real token stay finite.
MASK_BIAS = -10000.0

# Whether what is traced now runs on a CPU. Only a runtime knows where its graph will run; a layer
# in someone's model, or an export, takes the forms that do anywhere.
_on_cpu: ContextVar[bool] = ContextVar("on_cpu", default=False)
# And whether its rows are so long that the scores of all heads together outgrow the caches.
_long_rows: ContextVar[bool] = ContextVar("long_rows", default=False)
# Rows up to this have fewer scores than it costs to compute them twice (docs/tpu.md).
_SHORT_ROW = 128
# Whether what is traced now runs on a TPU.
_on_tpu: ContextVar[bool] = ContextVar("on_tpu", default=False)


@contextlib.contextmanager
def traced_for(device_kind: str, *, long_rows: bool = False) -> Iterator[None]:
    """Chooses the forms of operations while a step is traced.

    Args:
      device_kind: `tpu`, `gpu` or `cpu`.
      long_rows: whether the rows are longer than a CPU's caches like.
    """
    on_cpu = device_kind == "cpu" and keras.backend.backend() == "tensorflow"
    wanted = {
        _on_cpu: on_cpu,
        _long_rows: on_cpu and long_rows,
        _on_tpu: device_kind == "tpu",
    }
    tokens = {variable: variable.set(value) for variable, value in wanted.items()}
    try:
        yield
    finally:
        for variable, token in tokens.items():
            variable.reset(token)


def tokens_in_lanes() -> bool:
    """Whether attention shall keep the tokens of a row in the last dimension: on a TPU."""
    return _on_tpu.get()


def on_cpu() -> bool:
    """Whether what is traced now will run on a CPU, on TensorFlow; False where nobody knows."""
    return _on_cpu.get()


@functools.cache
def bfloat16_products() -> Literal["onednn", "plain", "refused"]:
    """How TensorFlow computes in bfloat16 on this CPU, found by computing a small softmax.

    Returns:
      `onednn`: oneDNN's kernels compute in bfloat16 with float32 inside. `plain`: oneDNN is off or
      the CPU lacks AVX-512, and each operation rounds, sums included. `refused`: oneDNN is limited
      to a lower instruction set than the CPU has (ONEDNN_MAX_CPU_ISA), where a softmax raises an
      error and a matrix product ends the process.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        # 0 to 4 in steps that bfloat16 holds: what differs then comes from the softmax.
        scores = tf.range(256, dtype=tf.float32) / 64
        try:
            got = tf.nn.softmax(tf.cast(scores, tf.bfloat16))
        except tf.errors.OpError:
            return "refused"
        rounded_once = tf.cast(tf.nn.softmax(scores), tf.bfloat16)
        return "onednn" if bool(tf.reduce_all(got == rounded_once)) else "plain"


def _needs_float32(x: Any) -> bool:
    """Whether operations on x compute in float32 and round their result once.

    So they do in bfloat16 on a CPU whose oneDNN does not compute in it. In someone's model, whose
    device is unknown, only where bfloat16 could not be computed at all.
    """
    if keras.backend.backend() != "tensorflow" or _on_tpu.get():
        return False
    if keras.backend.standardize_dtype(x.dtype) != "bfloat16":
        return False
    if _on_cpu.get():
        return bfloat16_products() != "onednn"
    return bfloat16_products() == "refused" and not _sees_gpu()


def _sees_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _wide(x: Any) -> Any:
    return ops.cast(x, "float32")


def matmul(x: Any, y: Any) -> Any:
    """The matrix product of two arrays of one dtype, which the result has too."""
    if _needs_float32(x):
        return ops.cast(ops.matmul(_wide(x), _wide(y)), x.dtype)
    return ops.matmul(x, y)


def dense(x: Any, weight: Any, bias: Any, activation: Callable[[Any], Any]) -> Any:
    """The activation of x W + b: [N, H], [H, M], [M] -> [N, M]."""
    if _needs_float32(x):
        return ops.cast(dense(_wide(x), _wide(weight), _wide(bias), activation), x.dtype)
    return activation(add_bias(ops.matmul(x, weight), bias))


def add_bias(x: Any, bias: Any) -> Any:
    """The sum of x [N, H] and a bias [H], as a matrix product in front and a GELU behind fuse with.

    They do with a BiasAdd, not with the Add of `keras.ops`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.bias_add(x, tf.convert_to_tensor(bias, x.dtype))
    return ops.add(x, bias)


def reshape_like(x: Any, like: Any) -> Any:
    """Gives x the shape of `like`, so that a sum of the two fuses with the product in front.

    TensorFlow must know that both have the same shape, even where it does not know which.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reshape(x, tf.shape(like))
    return ops.reshape(x, ops.shape(like))


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer normalisation (Ba et al. 2016, arXiv:1607.06450) over the last axis.

    Args:
      x: [N, H] or [B, S, H].
      gamma: the scale, [H].
      beta: the offset, [H].
      epsilon: added to the variance.

    Returns:
      The shape and dtype of x; computed in float32 whatever that is.
    """
    if _needs_float32(x):
        return ops.cast(layer_norm(_wide(x), _wide(gamma), _wide(beta), epsilon), x.dtype)
    if _on_cpu.get():
        return _onednn_layer_norm(x, gamma, beta, epsilon)
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centred = wide - mean
    if _on_tpu.get() and x.dtype != wide.dtype:
        # Both sums in one pass, with the product that makes x. What cancels in float32 is far less
        # than what x lost by being narrower.
        squares = ops.mean(ops.square(wide), axis=-1, keepdims=True)
        variance = ops.maximum(squares - ops.square(mean), 0.0)
    else:
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
    return ops.cast(centred * scale + ops.cast(beta, "float32"), x.dtype)


def _onednn_layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer norm as a batch norm of which every row is a channel, which becomes one kernel.

    It is the form of the Keras 2 layer, and the only one that the remapper of TensorFlow 2.20
    knows. Where the rewrite is off, it is computed as it stands here, with the same results.
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


def attention_weights(query: Any, key: Any, mask: Any, scale: float) -> Any:
    """Softmax of the scaled scores, masked positions left out.

    Args:
      query: [B, A, S, D].
      key: [B, A, S, D].
      mask: int32 [B, S], 1 = real.
      scale: of the scores.

    Returns:
      [B, A, S, S] of the dtype of `query`. The softmax is computed in float32; on a CPU by
      oneDNN's kernel, whose input has the dtype of `query`.
    """
    if _needs_float32(query):
        weights = attention_weights(_wide(query), _wide(key), mask, scale)
        return ops.cast(weights, query.dtype)
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    # On a CPU the product takes up the factor and the bias; elsewhere the casts cost nothing, as
    # the compiler fuses them.
    dtype = scores.dtype if _on_cpu.get() else "float32"
    # By a choice, not a product: of two products to add, the rewrite may take the wrong one.
    bias = ops.where(mask > 0, ops.cast(0.0, dtype), ops.cast(MASK_BIAS, dtype))
    scores = ops.cast(scores, dtype) * ops.cast(scale, dtype) + bias[:, None, None, :]
    return ops.cast(ops.softmax(scores, axis=-1), query.dtype)


def attend(query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
    """Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762).

    Args:
      query: [B, A, S, D], as `key` and `value`.
      key: see there.
      value: see there.
      mask: int32 [B, S], 1 = real.
      scale: of the scores.

    Returns:
      [B, A, S, D].
    """
    if _needs_float32(query):
        context = attend(_wide(query), _wide(key), _wide(value), mask, scale)
        return ops.cast(context, query.dtype)
    if not _long_rows.get():
        return ops.matmul(attention_weights(query, key, mask, scale), value)
    # Head by head: what one operation leaves in the caches, the next finds there.
    heads = zip(*(ops.split(x, x.shape[1], axis=1) for x in (query, key, value)), strict=True)
    return ops.concatenate(
        [ops.matmul(attention_weights(q, k, mask, scale), v) for q, k, v in heads], axis=1
    )


def project_into_lanes(x: Any, weight: Any, bias: Any) -> Any:
    """A dense layer with the tokens of a row last: [B, S, H], [H, M], [M] -> [B, M, S]."""
    return ops.einsum("bsh,hm->bms", x, weight) + bias[:, None]


def project_out_of_lanes(x: Any, weight: Any, bias: Any) -> Any:
    """The way back: [B, M, S], [M, H], [H] -> [B, S, H]."""
    return ops.einsum("bms,mh->bsh", x, weight) + bias


def attend_in_lanes(query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
    """As `attend`, with the tokens of a row in the last dimension, which a TPU has in its lanes.

    Every product then leaves its result as the next takes it, and no array is transposed. What is
    written of [B, A, S, S] and read again has the dtype of `query`: of short rows the scores; of
    longer ones, which have more of them, only the softmax's powers, the scores being computed once
    for their maximum and once for the powers. In between all is float32.

    Args:
      query: [B, A, D, S], as `key` and `value`.
      key: see there.
      value: see there.
      mask: int32 [B, S], 1 = real.
      scale: of the scores.

    Returns:
      [B, A, D, S].
    """
    bias = ops.where(mask > 0, ops.cast(0.0, "float32"), ops.cast(MASK_BIAS, "float32"))
    scores = _scores_in_lanes(query, key, bias, scale)
    highest = ops.max(scores, axis=-1, keepdims=True)
    if (query.shape[-1] or 0) <= _SHORT_ROW:  # None: a length that TensorFlow does not know yet
        scores, highest = _materialised(ops.cast(scores, query.dtype), highest)
        powers = ops.exp(ops.cast(scores, "float32") - highest)
        weights = powers / ops.sum(powers, axis=-1, keepdims=True)
        return ops.einsum("baqk,badk->badq", ops.cast(weights, query.dtype), value)
    query, key, highest = _materialised(query, key, highest)
    powers = ops.exp(_scores_in_lanes(query, key, bias, scale) - highest)
    powers, total = _materialised(ops.cast(powers, query.dtype), ops.sum(powers, axis=-1))
    context = ops.cast(ops.einsum("baqk,badk->badq", powers, value), "float32")
    return ops.cast(context / total[:, :, None, :], query.dtype)


def _scores_in_lanes(query: Any, key: Any, bias: Any, scale: float) -> Any:
    """[B, A, D, S], [B, A, D, S], [B, S] -> float32 [B, A, S, S]."""
    scores = ops.cast(ops.einsum("badq,badk->baqk", query, key), "float32")
    return scores * scale + bias[:, None, None, :]


def _materialised(*arrays: Any) -> tuple[Any, ...]:
    """The arrays, which XLA then has as they are.

    It would keep the wider ones that they come from, and compute nothing twice. TensorFlow has no
    public way to say so; there the compiler has its choice.
    """
    if keras.backend.backend() != "jax":
        return arrays
    import jax

    return tuple(jax.lax.optimization_barrier(arrays))
