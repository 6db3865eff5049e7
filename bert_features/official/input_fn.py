"""The official script's input_fn, over features in memory.

Shape legend: `N` examples, `B` batch_size, `S` length of the rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import FILL_VALUES
from bert_features.errors import ConfigError
from bert_features.official.features import InputFeatures

Params = Mapping[str, Any]
InputFn = Callable[[Params], tf.data.Dataset]


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int) -> InputFn:
    """An input_fn over features in memory, all of one length, as the official script has it.

    Args:
      features: the features that `convert_examples_to_features` made.
      seq_length: their length.

    Returns:
      A function of `params` that reads `batch_size` and gives a dataset of
      {unique_ids int64 [B]; input_word_ids, input_mask, input_type_ids int32 [B, S]}.

    Raises:
      ConfigError: a feature is of another length, or its id is not an integer from 0.
    """
    for feature in features:
        if not isinstance(feature.unique_id, int) or feature.unique_id < 0:
            raise ConfigError(
                f"the id of an example is {feature.unique_id!r}; an Estimator's batches hold "
                "integers from 0, number the examples (FeatureExtractor and extract keep ids of "
                "any kind)"
            )
        if len(feature.input_ids) != seq_length:
            raise ConfigError(
                f"the features of example {feature.unique_id} are {len(feature.input_ids)} long; "
                f"seq_length is {seq_length}"
            )

    def matrix(rows: Iterable[list[int]]) -> np.ndarray:
        return np.array(list(rows), np.int32).reshape(len(features), seq_length)

    columns = {
        "unique_ids": np.array([f.unique_id for f in features], np.int64),
        "input_word_ids": matrix(f.input_ids for f in features),
        "input_mask": matrix(f.input_mask for f in features),
        "input_type_ids": matrix(f.input_type_ids for f in features),
    }

    def input_fn(params: Params) -> tf.data.Dataset:
        return _fixed_batches(columns, int(params["batch_size"]))

    return input_fn


def _fixed_batches(columns: Mapping[str, Any], batch_size: int) -> tf.data.Dataset:
    """Cuts columns [N, …] into batches [B, …], the last filled up with masked rows."""
    count = tf.shape(columns["unique_ids"])[0]
    missing = -count % batch_size

    def batches(name: str, column: tf.Tensor) -> tf.Tensor:
        column = tf.convert_to_tensor(column)
        paddings = [[0, missing]] + [[0, 0]] * (column.shape.rank - 1)
        fill = tf.cast(FILL_VALUES.get(name, 0), column.dtype)
        padded = tf.pad(column, paddings, constant_values=fill)
        return tf.reshape(padded, [-1, batch_size, *column.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(
        {name: batches(name, column) for name, column in columns.items()}
    )
