"""computed_eagerly: what this package computes at once, within a program's own `tf.Graph` too."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def computed_eagerly() -> Iterator[None]:
    """Within it, or within a function that it decorates, no graph of the caller's is built on."""
    with tf.__internal__.eager_context.eager_mode():
        yield
