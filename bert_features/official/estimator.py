"""Estimator.predict, as the tutorials know it: a model_fn and an input_fn give predictions."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from bert_features.batches.bucketing import FILLER_ID
from bert_features.batches.input_fn import InputFn, TextInputFn
from bert_features.encoder.step import DeviceStep
from bert_features.machine.names import Device, RuntimeName
from bert_features.machine.selection import make_runtime
from bert_features.runtime.base import Runtime, Started

_Item = TypeVar("_Item")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class RunConfig:
    """Where an Estimator runs.

    Attributes:
      device: `auto` takes TPU, GPU or CPU, in that order.
      runtime: `auto` takes that of Keras' backend, see `runtime.selection`.
    """

    device: Device = "auto"
    runtime: RuntimeName = "auto"


class Estimator:
    """Runs a model_fn over an input_fn on all devices.

    Args:
      model_fn: what `model_fn_builder` built.
      config: where to run.
      predict_batch_size: rows of each batch, over all devices together; a multiple of their number.
        None leaves it to `params`, see `TextInputFn`.
      params: further entries of the `params` that the input_fn receives.
      runtime: what to run on, if it exists already; `config` does not count then.

    Attributes:
      devices: what it runs on.

    Raises:
      ConfigError: the wanted device is not here.
    """

    def __init__(
        self,
        model_fn: DeviceStep,
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
        """How often the step was traced so far."""
        return self._step.traces

    def predict(
        self, input_fn: InputFn, yield_single_examples: bool = True
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

    def predict_batches(self, input_fn: InputFn) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields every batch, filler rows too, with its outputs [B, S, D] or [B, D]."""
        pending: deque[tuple[Arrays, Started]] = deque()
        try:
            for batch in _taken_by_a_thread(self._batches(input_fn)):
                inputs = {name: batch[name] for name in self._inputs}
                pending.append((batch, self._step(inputs)))
                while pending and (len(pending) == self._step.in_flight or pending[0][1].done()):
                    yield _finish(*pending.popleft())
            while pending:
                yield _finish(*pending.popleft())
        finally:
            for _, started in pending:  # of a run that failed, or was left
                started.cancel()

    def _batches(self, input_fn: InputFn) -> Iterator[Arrays]:
        # Without a tf.data iterator around it, whose threads may wait for Python, and Python for
        # them, when a failed run ends.
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


def _taken_by_a_thread(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items. Their thread may block in TensorFlow on slow input; this one hears Ctrl-C."""
    ready: queue.Queue[tuple[_Item | None, BaseException | None]] = queue.Queue(maxsize=1)
    unwanted = threading.Event()

    def offer(item: _Item | None, error: BaseException | None = None) -> None:
        while not unwanted.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, error), timeout=0.1)
                return

    def take() -> None:
        try:
            for item in items:
                offer(item)
                if unwanted.is_set():
                    return
            offer(None, StopIteration())
        except BaseException as error:
            offer(None, error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield cast(_Item, item)
    finally:
        unwanted.set()
        # It ends by itself unless its input keeps it waiting; Python should not end before it.
        thread.join(timeout=1.0)


def _finish(batch: Arrays, results: Started) -> tuple[Arrays, Arrays]:
    return batch, results()
