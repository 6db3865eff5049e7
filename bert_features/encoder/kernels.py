"""Operations in the forms that a backend fuses best.

TensorFlow's graph rewrites for CPUs (Grappler's remapper and oneDNN) know a few patterns. Anything
else runs as a chain of operations, each a pass over memory. The forms here match the patterns;
scripts/benchmarking/diary.md has the gains.

XLA's compiler for TPUs fuses freely, but copies an array where one product leaves it in another
layout than the next product needs. docs/tpu.md says how much traffic the forms for TPUs save.

Shape legend: `B` batch, `S` sequence, `H` hidden, `A` heads, `D` head size, `N` rows.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, cast

import keras
import numpy as np
from keras import ops

from bert_features.encoder import pallas_attention
from bert_features.encoder.pallas_attention import OTHER_ROW
from bert_features.encoder.types import Tensor

_Operation = TypeVar("_Operation", bound=Callable[..., Any])

# Added to the scores of masked positions. -10000, not -inf: the checkpoints were trained with it,
# and rows without any real token stay finite.
MASK_BIAS = -10000.0

# Whether the graph being traced runs on a CPU. Only a runtime knows where its graph will run. A
# layer in a user's own model, or an export, takes the forms that work anywhere.
_on_cpu: ContextVar[bool] = ContextVar("on_cpu", default=False)
# Whether its rows are so long that attention goes head by head.
_long_rows: ContextVar[bool] = ContextVar("long_rows", default=False)
# Whether that CPU has no AVX-512.
_narrow: ContextVar[bool] = ContextVar("narrow", default=False)
# Whether its batches have so few tokens that starting oneDNN's kernels takes longer than computing.
_few_tokens: ContextVar[bool] = ContextVar("few_tokens", default=False)
# Tokens in the lanes of a TPU's registers; shorter rows lie side by side in them. Up to this many
# tokens it is cheaper to store the scores than to compute them twice
# (scripts/benchmarking/diary.md).
_LANES = 128
# From this length on, XLA computes both products of a feed-forward part in one pass on a TPU.
_LONG_ENOUGH = 256
# Rows of ones below the values: one tile, so that the values stay aligned.
_ONES = 8
# Whether the graph being traced runs on a TPU.
_on_tpu: ContextVar[bool] = ContextVar("on_tpu", default=False)
# Whether attention there is the Pallas kernel.
_by_pallas: ContextVar[bool] = ContextVar("by_pallas", default=False)


@contextlib.contextmanager
def traced_for(
    device_kind: str,
    *,
    long_rows: bool = False,
    narrow: bool = False,
    few_tokens: bool = False,
    pallas: bool = False,
) -> Iterator[None]:
    """Chooses the forms of operations while a step is traced.

    Args:
      device_kind: `tpu`, `gpu` or `cpu`.
      long_rows: whether attention on a CPU goes head by head, see `attend_by_head`.
      narrow: whether the CPU computes without AVX-512, see `machine.onednn.is_narrow`.
      few_tokens: whether a batch has no more than some dozens of tokens.
      pallas: whether attention on a TPU is the Pallas kernel; only on JAX, and only where the step
        is divided over the devices by `shard_map`, as XLA cannot divide a kernel.
    """
    on_cpu = device_kind == "cpu" and keras.backend.backend() == "tensorflow"
    wanted = {
        _on_cpu: on_cpu,
        _long_rows: on_cpu and long_rows,
        _narrow: on_cpu and narrow,
        _few_tokens: on_cpu and few_tokens,
        _on_tpu: device_kind == "tpu",
        _by_pallas: device_kind == "tpu" and pallas,
    }
    tokens = {variable: variable.set(value) for variable, value in wanted.items()}
    try:
        yield
    finally:
        for variable, token in tokens.items():
            variable.reset(token)


def chosen_forms() -> tuple[bool, ...]:
    """The forms that `traced_for` chose; they distinguish the traces of one function."""
    chosen = (_on_cpu, _long_rows, _narrow, _few_tokens, _on_tpu, _by_pallas)
    return tuple(variable.get() for variable in chosen)


def tokens_in_lanes() -> bool:
    """Whether attention keeps the tokens of a row in the last dimension, as on a TPU."""
    return _on_tpu.get()


def head_by_head() -> bool:
    """Whether attention goes head by head, as on a CPU for long rows."""
    return _long_rows.get()


def on_cpu() -> bool:
    """Whether the graph being traced runs on a CPU, on TensorFlow; False if that is unknown."""
    return _on_cpu.get()


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
    if keras.backend.backend() != "tensorflow" or _on_tpu.get():
        return False
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype not in ("bfloat16", "float16"):
        return False
    if _on_cpu.get() and dtype == "bfloat16":
        return bfloat16_products() != "onednn"
    return bfloat16_products() == "refused" and not _sees_gpu()


def _sees_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _rounded_once(num_arrays: int) -> Callable[[_Operation], _Operation]:
    """Makes an operation compute in float32 and round once, where `_needs_float32` says so.

    Args:
      num_arrays: number of leading arguments that are arrays of one dtype.
    """

    def decorate(operation: _Operation) -> _Operation:
        @functools.wraps(operation)
        def run(*arguments: Any) -> Tensor:
            arrays, others = arguments[:num_arrays], arguments[num_arrays:]
            if not _needs_float32(arrays[0]):
                return operation(*arguments)
            wide = [ops.cast(array, "float32") for array in arrays]
            return ops.cast(operation(*wide, *others), arrays[0].dtype)

        return cast(_Operation, run)

    return decorate


@_rounded_once(2)
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product of two arrays of one dtype, in that dtype."""
    return ops.matmul(x, y)


@_rounded_once(3)
def dense(
    x: Tensor, weight: Tensor, bias: Tensor, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    """The activation of x W + b: [N, H], [H, M], [M] -> [N, M]."""
    return activation(add_bias(ops.matmul(x, weight), bias))


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
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Layer normalisation (Ba et al. 2016, arXiv:1607.06450) over the last axis.

    Args:
      x: [N, H] or [B, S, H].
      gamma: the scale, [H].
      beta: the offset, [H].
      epsilon: added to the variance.

    Returns:
      The shape and dtype of x; computed in float32 for any dtype.
    """
    if _on_cpu.get() and not _few_tokens.get():
        return _onednn_layer_norm(x, gamma, beta, epsilon)
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centred = wide - mean
    if _on_tpu.get() and x.dtype != wide.dtype:
        # Both sums in one pass, together with the product that makes x. The cancellation in float32
        # loses far less than x lost when it was rounded.
        squares = ops.mean(ops.square(wide), axis=-1, keepdims=True)
        variance = ops.maximum(squares - ops.square(mean), 0.0)
    else:
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
    return ops.cast(centred * scale + ops.cast(beta, "float32"), x.dtype)


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
    if not _few_tokens.get() or x.dtype != "float32":
        return ops.transpose(x, axes)
    import tensorflow as tf

    # As integers, which oneDNN leaves to TensorFlow: 20 us instead of 90 for a short sentence.
    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32), axes), x.dtype)


@_rounded_once(2)
def attention_weights(query: Tensor, key: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Softmax of the scaled scores, without masked positions.

    Args:
      query: [B, A, S, D], or [B, S, D] for a single head.
      key: the same shape.
      mask: int32 [B, S], 1 = real.
      scale: factor of the scores.

    Returns:
      [B, A, S, S] or [B, S, S] of the dtype of `query`. The softmax is computed in float32; on a
      CPU by oneDNN's kernel, whose input has the dtype of `query`.
    """
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    # On a CPU the factor and the bias fuse with the product. Elsewhere the casts cost nothing,
    # because the compiler fuses them.
    dtype = scores.dtype if _on_cpu.get() else "float32"
    # `where`, not a product: with two products to add, the rewrite may fuse the wrong one.
    bias = ops.where(mask > 0, ops.cast(0.0, dtype), ops.cast(MASK_BIAS, dtype))
    bias = bias[:, None, None, :] if len(query.shape) == 4 else bias[:, None, :]
    scores = ops.cast(scores, dtype) * ops.cast(scale, dtype) + bias
    return ops.cast(ops.softmax(scores, axis=-1), query.dtype)


@_rounded_once(3)
def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762).

    Args:
      query: [B, A, S, D].
      key: [B, A, S, D].
      value: [B, A, S, D].
      mask: int32 [B, S], 1 = real.
      scale: factor of the scores.

    Returns:
      [B, A, S, D].
    """
    return ops.matmul(attention_weights(query, key, mask, scale), value)


@_rounded_once(3)
def attend_by_head(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """As `attend`, head by head, so that each operation finds its input in a CPU's caches.

    With the heads first they are taken apart without a copy, and put together by the one copy that
    their transposition would take.

    Args:
      query: [A, B, S, D].
      key: [A, B, S, D].
      value: [A, B, S, D].
      mask: int32 [B, S], 1 = real.
      scale: factor of the scores.

    Returns:
      [B, S, A * D].
    """
    if not _narrow.get():
        # Of four dimensions, so that TensorFlow fuses scale and mask with the product of the
        # scores. With AVX2 alone the fused product is slower than the three operations.
        query, key, value = (ops.expand_dims(x, 2) for x in (query, key, value))
    heads = zip(*(ops.unstack(x, x.shape[0]) for x in (query, key, value)), strict=True)
    context = ops.concatenate(
        [ops.matmul(attention_weights(q, k, mask, scale), v) for q, k, v in heads], axis=-1
    )
    return context if _narrow.get() else ops.squeeze(context, 1)


@contextlib.contextmanager
def products_traced_in(precision: str) -> Iterator[None]:
    """Within it, JAX traces the products of bfloat16 arrays in its default precision.

    A runtime asks for exact products, for the sake of float32. For bfloat16 factors that changes no
    number, but XLA then fuses fewer products on a TPU (scripts/benchmarking/diary.md).

    Args:
      precision: the dtype of the factors, `float32` or `bfloat16`.
    """
    if precision != "bfloat16" or keras.backend.backend() != "jax":
        yield
        return
    import jax

    with jax.default_matmul_precision("default"):
        yield


def joined_rows(x: Tensor) -> Tensor:
    """Short rows as they pass through an encoder on a TPU: joined to rows of 256 tokens.

    Only for rows of at least that length XLA computes both products of a feed-forward part in one
    pass.

    Args:
      x: [B, S, H].

    Returns:
      [B * S / 256, 256, H], the same tokens in the same order; x itself where S is at least 256,
      where 256 does not divide B * S, or where TensorFlow does not know both yet.
    """
    batch, length, size = x.shape
    if not batch or not length or length >= _LONG_ENOUGH or batch * length % _LONG_ENOUGH:
        return x
    return ops.reshape(x, (-1, _LONG_ENOUGH, size))


def rows_side_by_side(mask: Tensor) -> int:
    """Number of rows that attention takes side by side on a TPU: together at most 128 tokens.

    Args:
      mask: [B, S]; the result divides B.
    """
    batch, length = mask.shape
    if not batch or not length:  # TensorFlow does not know them yet
        return 1
    return max(n for n in range(1, max(_LANES // length, 1) + 1) if batch % n == 0)


def project_into_lanes(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A dense layer with the tokens of a row last: [B, S, H], [H, M], [M] -> [B, M, S]."""
    return ops.einsum("bsh,hm->bms", x, weight) + bias[:, None]


def project_out_of_lanes(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The way back: [B, M, S], [M, H], [H] -> [B, S, H]."""
    return ops.einsum("bms,mh->bsh", x, weight) + bias


def attend_in_lanes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """As `attend`, with the tokens of a row in the last dimension, the lanes of a TPU.

    Every product then leaves its result in the layout that the next one takes, and no array is
    transposed. G short rows lie side by side; each token attends to its own row.

    Up to 128 tokens the scores are written and read again, in the dtype of `query`. Beyond, they
    are computed twice, for their maximum and for the powers of the softmax, and XLA hands the
    powers to the next product without writing them. Everything in between is float32.
    `traced_for` can choose the Pallas kernel instead.

    Args:
      query: [B / G, A, D, G * S].
      key: [B / G, A, D, G * S].
      value: [B / G, A, D, G * S].
      mask: int32 [B, S], 1 = real.
      scale: factor of the scores.

    Returns:
      [B / G, A, D, G * S].
    """
    bias = ops.where(mask > 0, ops.cast(0.0, "float32"), ops.cast(MASK_BIAS, "float32"))
    if _by_pallas.get():
        return pallas_attention.attend(query, key, value, bias, scale)
    scores = _scores_in_lanes(query, key, bias, scale)
    highest = ops.max(scores, axis=-1, keepdims=True)
    if (query.shape[-1] or 0) <= _LANES:  # None: a length that TensorFlow does not know yet
        scores, highest = _materialised(ops.cast(scores, query.dtype), highest)
        powers = ops.exp(ops.cast(scores, "float32") - highest)
        weights = powers / ops.sum(powers, axis=-1, keepdims=True)
        return ops.einsum("baqk,badk->badq", ops.cast(weights, query.dtype), value)
    query, key, highest = _materialised(query, key, highest)
    return _weighted_mean(ops.exp(_scores_in_lanes(query, key, bias, scale) - highest), value)


def _scores_in_lanes(query: Tensor, key: Tensor, bias: Tensor, scale: float) -> Tensor:
    """[B / G, A, D, G * S], [B / G, A, D, G * S], [B, S] -> float32 [B / G, A, G * S, G * S]."""
    scores = ops.cast(ops.einsum("badq,badk->baqk", query, key), "float32") * scale
    row, joined = bias.shape[-1], query.shape[-1]
    if row == joined:
        return scores + bias[:, None, None, :]
    numbers = np.arange(joined) // row
    scores = scores + ops.reshape(bias, (-1, 1, 1, joined))
    return ops.where(numbers[:, None] == numbers, scores, ops.cast(OTHER_ROW, "float32"))


def _weighted_mean(powers: Tensor, value: Tensor) -> Tensor:
    """The mean of the values by weights that do not add up to 1.

    On JAX one product gives the sum of the weighted values and that of the weights, by rows of ones
    below the values. So the weights have a single use, and XLA need not write them.

    Args:
      powers: the weights, float32 [B, A, S, S].
      value: [B, A, D, S].

    Returns:
      [B, A, D, S] of the dtype of `value`.
    """
    narrow = ops.cast(powers, value.dtype)
    if keras.backend.backend() != "jax":
        context = ops.cast(ops.einsum("baqk,badk->badq", narrow, value), "float32")
        return ops.cast(context / ops.sum(powers, axis=-1)[:, :, None, :], value.dtype)
    import jax.numpy as jnp

    size = value.shape[2]
    value = jnp.pad(value, [(0, 0), (0, 0), (0, _ONES), (0, 0)], constant_values=1)
    sums = jnp.einsum("baqk,badk->badq", narrow, value, preferred_element_type="float32")
    return ops.cast(sums[:, :, :size] / sums[:, :, size : size + 1], value.dtype)


def _materialised(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The same arrays, which XLA must then store as they are.

    It would otherwise store the wider arrays that they come from. TensorFlow has no public way to
    say so; there the compiler decides.
    """
    if keras.backend.backend() != "jax":
        return arrays
    import jax

    return tuple(jax.lax.optimization_barrier(arrays))
