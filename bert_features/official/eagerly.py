"""computed_eagerly: what this package computes at once, within a program's own `tf.Graph` too."""

import contextlib
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from bert_features.errors import check_process


@contextlib.contextmanager
def computed_eagerly() -> Iterator[None]:
    """Within it, or within a function that it decorates, no graph of the caller's is built on.

    Raises:
      DeviceError: eager execution is off everywhere, see `check_process`.
    """
    if not tf.executing_eagerly():
        _check_other_threads()
    with tf.__internal__.eager_context.eager_mode():
        yield


@functools.cache
def _check_other_threads() -> None:
    """A new thread is within no graph, unless `disable_eager_execution` was called."""
    with ThreadPoolExecutor() as threads:
        threads.submit(check_process).result()
