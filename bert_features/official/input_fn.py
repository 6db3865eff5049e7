"""The official script's input_fn, over features in memory.

Shape legend: `N` examples, `B` batch_size, `S` length of the rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.official.features import InputFeatures

Params = Mapping[str, Any]
InputFn = Callable[[Params], tf.data.Dataset]


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int) -> "MemoryInputFn":
    """An input_fn over features in memory, all of one length, as the official script has it.

    Args:
      features: the features that `convert_examples_to_features` made.
      seq_length: their length.

    Returns:
      A function of `params` that reads `batch_size` and gives a dataset of
      {unique_ids int64 [B]; input_ids, input_mask, input_type_ids int32 [B, S]}. The last batch may
      be smaller; the Estimator fills it.

    Raises:
      ConfigError: a feature is of another length, or its id is not an integer from 0.
    """
    for feature in features:
        if not hasattr(feature.unique_id, "__index__") or feature.unique_id < 0:
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
        "input_ids": matrix(f.input_ids for f in features),
        "input_mask": matrix(f.input_mask for f in features),
        "input_type_ids": matrix(f.input_type_ids for f in features),
    }

    return MemoryInputFn(columns)


@dataclass(frozen=True)
class MemoryInputFn:
    """An input_fn over features in memory.

    Attributes:
      columns: arrays [N, …] by name.
    """

    columns: Mapping[str, np.ndarray]

    def __call__(self, params: Params) -> tf.data.Dataset:
        """The batches of `params["batch_size"]` rows; the last may have fewer."""
        rows = int(params["batch_size"])
        return tf.data.Dataset.from_tensor_slices(dict(self.columns)).batch(rows)
