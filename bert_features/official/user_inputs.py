"""What is a user's own: an input_fn, called as by TensorFlow 1, its dataset; a graph around all.

Shape legend: `B` batch.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import tensorflow as tf

from bert_features.batches.bucketing import Columns
from bert_features.errors import ConfigError

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


def call_by_names(function: Callable[..., Any], first: Any, values: Mapping[str, Any]) -> Any:
    """Calls a function of a user with those arguments that it names, as TensorFlow 1 did.

    `first` is passed by place if the function needs an argument that `values` does not have.
    """
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in bound
    }
    needed = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and name not in values
    ]
    positional = [first] if needed else []
    return function(*positional, **{name: values[name] for name in values if name in parameters})


def open_dataset(input_fn: Callable[..., Any], arguments: Mapping[str, Any]) -> tf.data.Dataset:
    """The dataset of an input_fn, which takes some of the arguments given by name.

    That is `params`, by any name or place, `mode` and `config`. Raises ConfigError if it returns
    something else.
    """
    dataset = call_by_names(input_fn, arguments["params"], arguments)
    if not isinstance(dataset, tf.data.Dataset):
        raise ConfigError(
            f"the input_fn returned {dataset!r:.100}; allowed: a tf.data.Dataset (without "
            "make_one_shot_iterator and get_next)"
        )
    return dataset


def feature_specs(dataset: tf.data.Dataset) -> dict[str, tf.TensorSpec]:
    """Name -> shape and dtype of each feature; the size of a batch is left open.

    Raises ConfigError if the features are not a dict of dense tensors [B, …].
    """
    features = _features(dataset.element_spec)
    if not isinstance(features, Mapping):
        raise ConfigError(f"the features are {features!r:.100}; allowed: a dict of tensors")
    for name, spec in features.items():
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
            raise ConfigError(
                f"feature {name!r} is {spec!r:.100}; allowed: a tensor of known rank with a row "
                "for each example, [batch, …]"
            )
    return {n: tf.TensorSpec([None, *s.shape[1:]], s.dtype) for n, s in features.items()}


def read_features(dataset: tf.data.Dataset) -> Iterator[Columns]:
    """The features of each batch as arrays [B, …]; batches without rows are left out.

    Without a tf.data iterator around it: at the end of a failed run the iterator's threads may wait
    for Python while Python waits for them. And without reading ahead: a generator may wait for the
    predictions of the batch before.
    """
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    for element in dataset.with_options(options):
        columns = {name: value.numpy() for name, value in _features(element).items()}
        if len(next(iter(columns.values()))):
            yield columns


def _features(element: Any) -> Any:
    """The features of (features, labels), or of features alone."""
    return element[0] if isinstance(element, tuple) else element
