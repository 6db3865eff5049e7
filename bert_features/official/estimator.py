"""Estimator.predict, as tutorials use it: a model_fn and an input_fn give predictions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import FILLER_ID, Columns
from bert_features.batches.input_fn import TextInputFn
from bert_features.machine.names import Device, RuntimeName
from bert_features.official.input_fn import InputFn
from bert_features.official.model_fn import ModelFn
from bert_features.runtime.base import Runtime
from bert_features.runtime.loop import run_step
from bert_features.runtime.start import make_runtime


@dataclass(frozen=True)
class RunConfig:
    """Where an Estimator runs.

    Attributes:
      device: `auto` takes TPU, GPU or CPU, in that order.
      runtime: `auto` takes that of Keras' backend, see `machine.selection`.
    """

    device: Device = "auto"
    runtime: RuntimeName = "auto"


class Estimator:
    """Runs a model_fn over an input_fn on all devices.

    Args:
      model_fn: a model_fn of `model_fn_builder`.
      config: where to run.
      predict_batch_size: rows of each batch, over all devices together; a multiple of their number.
        None: `params` say it, see `TextInputFn`.
      params: further entries of the `params` that the input_fn receives.
      runtime: the runtime, if started already; then `config` is not used.

    Attributes:
      devices: the devices it runs on.

    Raises:
      ConfigError: the wanted device is absent.
    """

    def __init__(
        self,
        model_fn: ModelFn,
        config: RunConfig | None = None,
        *,
        predict_batch_size: int | None = 32,
        params: Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        config = config or RunConfig()
        runtime = runtime or make_runtime(config.runtime, config.device)
        self.devices = runtime.devices
        self._params = {**(params or {}), **runtime.batching}
        if predict_batch_size is not None:
            self._params["batch_size"] = predict_batch_size
        self._inputs = model_fn.inputs
        self._step = runtime.compile(model_fn.step, model_fn.weights)

    @property
    def traces(self) -> int:
        """Number of times the step was traced so far."""
        return self._step.traces

    def predict(
        self, input_fn: InputFn | TextInputFn, yield_single_examples: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Yields the predictions for every example of the input; filler rows are left out.

        Args:
          input_fn: gives the dataset, when called with {"batch_size": predict_batch_size}.
          yield_single_examples: one dict for each example, `unique_id` an int and every output
            [S, D], of the sequence [D]; otherwise one for each batch, `unique_id` int64 [n] and
            every output [n, S, D] or [n, D].

        Raises:
          InputError: the input_fn's examples cannot be read.
        """
        for batch, outputs in self.predict_batches(input_fn):
            real = np.flatnonzero(batch["unique_ids"] != FILLER_ID)
            predictions = {"unique_id": batch["unique_ids"], **outputs}
            if not yield_single_examples:
                yield {name: values[real] for name, values in predictions.items()}
                continue
            for row in real:
                yield {name: values[row] for name, values in predictions.items()}

    def predict_batches(self, input_fn: InputFn | TextInputFn) -> Iterator[tuple[Columns, Columns]]:
        """Yields every batch, filler rows too, with its outputs [B, S, D] or [B, D]."""
        return run_step(
            self._step,
            self._batches(input_fn),
            lambda batch: {name: batch[name] for name in self._inputs},
        )

    def _batches(self, input_fn: InputFn | TextInputFn) -> Iterator[Columns]:
        # Without a tf.data iterator around it: at the end of a failed run the iterator's threads
        # may wait for Python while Python waits for them.
        if isinstance(input_fn, TextInputFn):
            yield from input_fn.batches(self._params)
            return
        try:
            for batch in input_fn(self._params):
                yield {name: value.numpy() for name, value in batch.items()}
        except tf.errors.OpError:
            # tf.data wraps what the input raised; such an input_fn may have kept the original.
            if cause := getattr(input_fn, "error", None):
                raise cause from None
            raise
