"""A callable class for `map_batches` of Ray Data: columns in, columns out.

Dimensions: `N` rows of a batch, `S` tokens or words of a row, `D` width of an output.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.errors import ConfigError
from bert_features.formats.columns import object_array, value_dtype
from bert_features.machine.hardware import limit_cores
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.readers.frames import column_names


class Features:
    """Adds the features of texts to the batches of a dataset.

    Ray makes one object for each actor, which holds the model; it can be called without Ray too:

        ds.map_batches(
            Features,
            fn_constructor_kwargs={"checkpoint": "minilm", "level": "sequence", "pooling": "mean"},
            compute=ray.data.ActorPoolStrategy(size=2), num_cpus=4, batch_size=1024,
        )

    Each output becomes a column of its name, `layer_output_0` or what `outputs` says. The batch
    keeps its other columns, its rows and their order, and its kind: a dict of NumPy arrays, a
    pandas DataFrame or a `pyarrow.Table`.

    | level | NumPy | pandas | Arrow |
    |---|---|---|---|
    | `sequence` | [N, D] | arrays [D] | `fixed_size_list[D]` |
    | `token`, `word` | object [N]: arrays [S, D] | arrays [S, D] | lists of `fixed_size_list[D]` |

    Ray writes object arrays and pandas columns of [S, D] as types of its own, which other programs
    read as a struct: with `batch_format="pyarrow"` they are lists of vectors everywhere.

    Args:
      text_column: the column of texts; None if `tokens_column` is used.
      text_b_column: the column of the second texts of pairs.
      tokens_column: the column of lists of words, instead of `text_column`.
      id_column: the column of ids, which must differ within a batch; errors name them.
      **settings: settings of `ExtractConfig`, as `checkpoint` and `layers`.

    Raises:
      ConfigError: a setting is unknown or has a value that is not allowed; `dtype` is `bfloat16`,
        which Arrow does not have.
      CheckpointError: the checkpoint is not usable.
    """

    def __init__(
        self,
        *,
        text_column: str | None = "text",
        text_b_column: str | None = None,
        tokens_column: str | None = None,
        id_column: str | None = None,
        **settings: Any,
    ) -> None:
        config = ExtractConfig.of(settings)
        if any(output.dtype == "bfloat16" for output in config.outputs):
            raise ConfigError(
                "dtype is 'bfloat16', which columns cannot hold; allowed: 'float32', 'float16'"
            )
        self._fields = {
            "text_field": text_column if tokens_column is None else None,
            "text_b_field": text_b_column,
            "tokens_field": tokens_column,
            "id_field": id_column or "",  # "": not a column that is called id
        }
        _limit_to_share()
        import_tensorflow(config.runtime, config.device)
        from bert_features.extraction.extractor import FeatureExtractor

        self._extractor = FeatureExtractor(config)

    def __call__(self, batch: Any) -> Any:
        """The batch with its features.

        Args:
          batch: a dict of NumPy arrays, a pandas DataFrame or a `pyarrow.Table`, of N rows.

        Returns:
          A new batch of the same kind, with a column more for each output.

        Raises:
          ConfigError: a column has the name of an output.
          InputError: a column is missing, or a row is no text.
        """
        names = set(column_names(batch) or ())
        for output in self._extractor.outputs:
            if output.name in names:
                raise ConfigError(
                    f"the dataset has a column {output.name!r} already, which is the name of an "
                    "output; name the output by outputs, or drop the column"
                )
        records = self._extractor(batch, **self._fields)
        columns = {
            output.name: (output, [record.features[output.name] for record in records])
            for output in self._extractor.outputs
        }
        if isinstance(batch, Mapping):
            return {**batch, **{name: _numpy_column(*column) for name, column in columns.items()}}
        if hasattr(batch, "assign"):  # pandas
            return batch.assign(**{name: object_array(rows) for name, (_, rows) in columns.items()})
        for name, column in columns.items():
            batch = batch.append_column(name, _arrow_column(*column))
        return batch


def _numpy_column(output: OutputSpec, rows: list[np.ndarray]) -> np.ndarray:
    """[N, D] of vectors; else object [N]."""
    if not output.is_sequence:
        return object_array(rows)
    empty = np.zeros((0, output.stored_width), value_dtype(output.dtype))
    return np.stack(rows) if rows else empty


def _arrow_column(output: OutputSpec, rows: list[np.ndarray]) -> Any:
    """Vectors as `fixed_size_list`; rows of [S, D], or matrices [D, S, S], as lists of such."""
    import pyarrow as pa

    width = output.stored_width
    empty = np.zeros((0, width), value_dtype(output.dtype))
    if output.is_paired:
        rows = [row.transpose(1, 2, 0).reshape(-1, width) for row in rows]
    values = np.concatenate([empty, *(row.reshape(-1, width) for row in rows)])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
    if output.is_sequence:
        return vectors
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), vectors)


def _limit_to_share() -> None:
    """In an actor of Ray's, keeps to the CPU cores that it was given."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return
    try:
        resources = ray.get_runtime_context().get_assigned_resources()
    except AssertionError:  # a driver: its cores are not Ray's to give
        return
    if cores := math.ceil(resources.get("CPU", 0)):
        limit_cores(cores)
