"""eagerly: what this package computes at once, within a program's own `tf.Graph` too."""

import functools
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def eagerly(function: _Function) -> _Function:
    """The same function; within a graph it runs in a thread of its own, which is within none."""

    @functools.wraps(function)
    def run(*arguments: Any, **settings: Any) -> Any:
        if tf.executing_eagerly():
            return function(*arguments, **settings)
        with ThreadPoolExecutor() as threads:
            result = threads.submit(function, *arguments, **settings).result()
        if isinstance(result, Generator):  # the caller may build its graph between two values
            return iter(eagerly(lambda: next(result, None)), None)
        return result

    return cast(_Function, run)
