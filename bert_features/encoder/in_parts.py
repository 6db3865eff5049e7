"""A function of rows, computed a part of the rows at a time: all at once would take more memory."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_features.encoder.types import Tensor

# Logits of so many values are held at once: 128 MiB.
MOST_LOGITS = 1 << 25


def in_parts(
    function: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]], most: Any, *rows: Tensor
) -> tuple[Tensor, ...]:
    """Calls a function with `most` rows at a time, an int or a tensor: [N, ...] -> [N, D] each."""
    count = ops.shape(rows[0])[0]
    parts = -(-count // most)
    if isinstance(parts, int) and parts <= 1:
        return function(rows)
    parts = parts if isinstance(parts, int) else ops.maximum(parts, 1)
    size = -(-count // parts)
    missing = parts * size - count

    def cut(each: Tensor) -> Tensor:
        inner = tuple(ops.shape(each))[1:]
        padding = ops.zeros((missing, *inner), each.dtype)
        return ops.reshape(ops.concatenate([each, padding], axis=0), (parts, size, *inner))

    results = _one_by_one(function, tuple(map(cut, rows)))
    return tuple(ops.reshape(each, (-1, ops.shape(each)[-1]))[:count] for each in results)


def _one_by_one(function: Callable[[Any], Any], parts: tuple[Tensor, ...]) -> Any:
    """The results of each part; one part is computed at a time."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, parts)
    import tensorflow as tf

    specs = tuple(
        tf.TensorSpec([None, each.shape[-1]], each.dtype)
        for each in function(tuple(part[0] for part in parts))
    )
    return tf.map_fn(function, parts, fn_output_signature=specs, parallel_iterations=1)
