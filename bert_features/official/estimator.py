"""Estimator.predict: a model_fn and an input_fn give predictions.

Shape legend: `B` batch, `S` sequence, `D` width of an output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import FILLER_ID, Columns
from bert_features.batches.input_fn import TextInputFn
from bert_features.errors import ConfigError
from bert_features.files import locate
from bert_features.machine.names import Device, RuntimeName
from bert_features.official.graph_step import GraphStep, UserModelFn
from bert_features.official.input_fn import InputFn, MemoryInputFn
from bert_features.official.model_fn import ModeKeys, ModelFn, both_spellings
from bert_features.official.user_inputs import eagerly, feature_specs, open_dataset, read_features
from bert_features.runtime.base import CompiledStep, Runtime
from bert_features.runtime.loop import run_step
from bert_features.runtime.start import make_runtime


@dataclass(frozen=True)
class RunConfig:
    """Where an Estimator runs.

    Attributes:
      device: `auto` takes TPU, GPU or CPU, in that order.
      runtime: `auto` takes the runtime of Keras' backend, see `machine.selection`. A model_fn of
        your own needs `tensorflow`, and gets it by `auto`.
      model_dir: a folder whose latest checkpoint holds the variables of a model_fn of your own; if
        it has none, the model_fn's own values count.
    """

    device: Device = "auto"
    runtime: RuntimeName = "auto"
    model_dir: str | None = None


class Estimator:
    """Runs a model_fn over an input_fn on all devices.

    Args:
      model_fn: a model_fn of `model_fn_builder`, for both runtimes; or a function of your own with
        the official signature (features, labels, mode, params) that builds a graph of TensorFlow 1
        and returns an `EstimatorSpec`, for the TensorFlow runtime.
      config: where to run.
      predict_batch_size: rows of each batch, over all devices together; where they are not a
        multiple of the number of devices, rows are added and dropped again. None: `params` must
        hold `batch_size`, or what `TextInputFn` takes, if the input_fn needs it.
      params: further entries of the `params` that the input_fn and the model_fn receive.
      runtime: the runtime, if started already; then the device of `config` is not used.
      model_dir: overrides `config.model_dir`.

    Attributes:
      devices: the devices it runs on.
      config: as passed, or the default.
      params: what the input_fn and the model_fn receive, with `batch_size`.
      model_dir: the folder of a trained model; None if there is none.

    Raises:
      ConfigError: the wanted device is absent; or the runtime is JAX, which runs no model_fn of
        your own.
    """

    @eagerly
    def __init__(
        self,
        model_fn: ModelFn | UserModelFn,
        config: RunConfig | None = None,
        *,
        predict_batch_size: int | None = 32,
        params: Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
        model_dir: str | None = None,
    ) -> None:
        self.config = config or RunConfig()
        chosen = model_dir or self.config.model_dir
        self.model_dir = str(locate(chosen)) if chosen else None
        self.params = dict(params or {})
        if predict_batch_size is not None:
            self.params["batch_size"] = predict_batch_size
        self._model_fn = model_fn
        name = self.config.runtime
        if name == "auto" and not isinstance(model_fn, ModelFn):
            name = "tensorflow"
        self._runtime = runtime or make_runtime(name, self.config.device)
        self.devices = self._runtime.devices
        self._compiled: _Compiled | None = None
        if isinstance(model_fn, ModelFn):
            step = self._runtime.compile(model_fn.step, model_fn.weights)
            self._compiled = _Compiled(step, model_fn.inputs, {"unique_id": "unique_ids"})
        elif self._runtime.name != "tensorflow":
            raise ConfigError(
                f"the runtime is {self._runtime.name}; a model_fn of your own needs tensorflow"
            )

    @property
    def traces(self) -> int:
        """Number of times the step was traced so far."""
        return 0 if self._compiled is None else self._compiled.step.traces

    @eagerly
    def predict(
        self,
        input_fn: InputFn | TextInputFn | Callable[..., tf.data.Dataset],
        predict_keys: Sequence[str] | None = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Yields the predictions for every example of the input.

        An input_fn of your own is asked for a batch when the predictions of the batch before are
        taken. `TextInputFn` and `input_fn_builder` are read ahead, which is faster.

        Args:
          input_fn: gives the dataset of features, or of (features, labels), when called with
            `params`, which hold {"batch_size": predict_batch_size}; it may also take `mode` and
            `config` by name, or nothing.
          predict_keys: the predictions to yield; by default all.
          hooks: not used.
          checkpoint_path: a TF1 checkpoint to read the variables from, for a model_fn of your own.
          yield_single_examples: one dict for each example, `unique_id` an int and every output
            [S, D], of the sequence [D]; otherwise one for each batch, `unique_id` int64 [n] and
            every output [n, S, D] or [n, D].

        Raises:
          CheckpointError: the checkpoint cannot be read, or does not hold the variables.
          ConfigError: the input_fn or the model_fn gives what cannot be run; `predict_keys` has a
            name that the predictions lack; `checkpoint_path` is given with a model_fn of
            `model_fn_builder`, which has read its weights.
          InputError: the input_fn's examples cannot be read.
        """
        del hooks
        source: Any = input_fn
        if not isinstance(input_fn, TextInputFn):
            arguments = {"params": self.params, "mode": ModeKeys.PREDICT, "config": self.config}
            source = open_dataset(input_fn, arguments)
        compiled = self._compiled_for(source, checkpoint_path)
        ahead = isinstance(input_fn, TextInputFn | MemoryInputFn)
        for batch, outputs in run_step(
            compiled.step, self._batches(source), compiled.arrays, ahead=ahead
        ):
            predictions = _chosen(compiled.predicted(batch, outputs), predict_keys)
            if not yield_single_examples:
                yield {name: values[batch.real] for name, values in predictions.items()}
                continue
            for row in batch.real:
                yield {name: values[row] for name, values in predictions.items()}

    def _compiled_for(self, source: Any, checkpoint_path: str | None) -> "_Compiled":
        """The step for a source of batches; the step of the last call if it fits."""
        checkpoint = checkpoint_path
        if not checkpoint and self.model_dir is not None:
            checkpoint = tf.train.latest_checkpoint(self.model_dir)
        if isinstance(self._model_fn, ModelFn):
            if checkpoint:
                raise ConfigError(
                    f"checkpoint_path or model_dir gives {checkpoint}, but this model_fn has read "
                    "its weights already; pass the checkpoint to model_fn_builder"
                )
            assert self._compiled is not None  # since __init__
            return self._compiled
        if isinstance(source, TextInputFn):
            features = both_spellings(feature_specs(source(self._text_params)))
        else:
            features = feature_specs(source)
        # A checkpoint is read again, as TensorFlow 1 did: training writes to the same path.
        if self._compiled is None or checkpoint or self._compiled.features != features:
            params = self.params
            if "batch_size" in params:  # on one device, as TPUEstimator has it
                params = params | {"batch_size": -(-params["batch_size"] // self.devices.count)}
            step = GraphStep(
                self._model_fn, features, params=params, config=self.config, checkpoint=checkpoint
            )
            run = self._runtime.compile(step.step, step.weights)
            self._compiled = _Compiled(run, step.inputs, step.passed, features)
        return self._compiled

    @property
    def _text_params(self) -> dict[str, Any]:
        return {**self.params, **self._runtime.batching}

    def _batches(self, source: Any) -> Iterator["_Batch"]:
        if isinstance(source, TextInputFn):
            for columns in source.batches(self._text_params):
                yield _Batch(both_spellings(columns), _real_rows(columns))
            return
        for columns in read_features(source):
            real = np.arange(len(next(iter(columns.values()))))
            if isinstance(self._model_fn, ModelFn):
                columns = both_spellings(columns)
                needed = ("unique_ids", *self._model_fn.inputs)
                if missing := [name for name in needed if name not in columns]:
                    raise ConfigError(
                        f"the features are {', '.join(columns)}; expected also {', '.join(missing)}"
                    )
                if odd := [x for x in np.unique(columns["input_mask"]) if x not in (0, 1)]:
                    raise ConfigError(f"input_mask has the value {odd[0]}; allowed: 0 and 1")
                if "tokens_lost" in columns:  # a batch of TextInputFn
                    real = _real_rows(columns)
            yield _Batch(self._filled(columns), real)

    def _filled(self, columns: Columns) -> Columns:
        """Adds copies of the last row: to whole batches where a shape is compiled for each."""
        count = len(next(iter(columns.values())))
        size = count
        if not self._runtime.any_shape:
            size = max(count, self.params.get("batch_size", 0))
        size += -size % self.devices.count
        if size == count:
            return columns
        rows = np.minimum(np.arange(size), count - 1)
        return {name: values[rows] for name, values in columns.items()}


@dataclass(frozen=True)
class _Batch:
    """Features [B, …], and the rows among them that were not added to fill the batch."""

    columns: Columns
    real: np.ndarray


@dataclass(frozen=True)
class _Compiled:
    """A compiled step.

    Attributes:
      inputs: names of the features that it takes.
      passed: prediction -> the feature that it is, which the step does not compute.
      features: shape and dtype of the features that a model_fn of the user's was called with.
    """

    step: CompiledStep
    inputs: Sequence[str]
    passed: Mapping[str, str]
    features: Mapping[str, tf.TensorSpec] | None = None

    def arrays(self, batch: _Batch) -> Columns:
        """The features that the step takes."""
        return {name: batch.columns[name] for name in self.inputs}

    def predicted(self, batch: _Batch, outputs: Columns) -> Columns:
        """All predictions for a batch, [B, …] each."""
        predictions = {name: batch.columns[feature] for name, feature in self.passed.items()}
        rows = len(next(iter(batch.columns.values())))
        for name, values in outputs.items():
            if values.shape[:1] != (rows,):
                raise ConfigError(
                    f"prediction {name!r} of the model_fn has the shape {values.shape}; expected "
                    f"[batch, …] with a batch of {rows} rows"
                )
        return predictions | outputs


def _real_rows(columns: Columns) -> np.ndarray:
    """The rows of a batch of TextInputFn that hold an example."""
    return np.flatnonzero(columns["unique_ids"] != FILLER_ID)


def _chosen(predictions: Columns, names: Sequence[str] | None) -> Columns:
    if names is None:
        return predictions
    if unknown := [name for name in names if name not in predictions]:
        raise ConfigError(
            f"predict_keys has {', '.join(map(repr, unknown))}; allowed: {', '.join(predictions)}"
        )
    return {name: predictions[name] for name in names}
