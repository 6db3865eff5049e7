"""The TensorFlow runtime: TPU, GPU or CPU through tf.distribute."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from bert_features.encoder.forms import check_backend, traced_for
from bert_features.encoder.kernels import bfloat16_products, dense
from bert_features.machine import onednn
from bert_features.machine.hardware import (
    MAX_STREAMS,
    cores,
    warn_of_missing_tpu,
)
from bert_features.machine.names import Device
from bert_features.runtime.base import (
    CompiledStep,
    Runtime,
    Started,
    Step,
    device_errors_explained,
    slowdown,
)
from bert_features.runtime.tensorflow_devices import Devices, resolve_devices

logger = logging.getLogger("bert_features")

_CPU = "CPU:0"  # without it, TensorFlow computes on a GPU if it sees one
# Rows longer than this go head by head through attention on a CPU: see `attention.by_head`. Without
# AVX-512 it pays earlier (benchmarks/diary.md).
_LONG_ROW, _LONG_ROW_IF_NARROW = 256, 96
# Batches of up to 64 tokens have a graph of their own: see `kernels.layer_norm` and
# `kernels.transpose`.
_FEW_TOKENS = 64


class TensorFlowRuntime(Runtime):
    """Runs a device step on the devices of one machine or slice.

    Args:
      device: kind of device to take.
      devices: the devices, if resolved already; then `device` is not used.

    Raises:
      ConfigError: that kind is absent, or Keras runs on another backend than TensorFlow.
    """

    name: Literal["tensorflow"] = "tensorflow"
    devices: Devices

    def __init__(self, device: Device = "auto", *, devices: Devices | None = None) -> None:
        check_backend("tensorflow", "the TensorFlow runtime")
        self.devices = devices or resolve_devices(device)
        warn_of_missing_tpu(self.devices.kind)
        self.any_shape = self.devices.kind == "cpu"

    def compile(
        self,
        step: Step,
        weights: Sequence[keras.Variable],
        *,
        longest: int = 0,
        shares_weights: bool = False,
    ) -> CompiledStep:
        """Places the weights and prepares the step.

        On one CPU it is traced once for all shapes; where rows are not known to become long, again
        when the first long one comes. Elsewhere each shape is compiled at its first use.
        """
        logger.info("%s", self.devices.describe())
        if self.devices.kind == "cpu" and (warning := onednn.warning()):
            logger.warning("%s", warning)
        alone_on_cpu = self.devices.kind == "cpu" and self.devices.strategy is None
        if alone_on_cpu:
            return _StepOnCpu(step, weights, longest=longest, shares_weights=shares_weights)
        return _StepByShape(step, weights, self.devices)

    def bfloat16_slowdown(self) -> float:
        """See `Runtime`; measured on the CPU in some 100 ms, in the form that a step takes."""

        @tf.function(autograph=False)
        def product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.device(_CPU), traced_for("cpu", **_forms_on_cpu(x.dtype.name)):
                return dense(x, y, tf.zeros(y.shape[1], y.dtype))

        return slowdown(
            lambda x, y: product(x, y).numpy(),
            lambda array, dtype: tf.cast(array, dtype),
        )


def _forms_on_cpu(dtype: str) -> dict[str, Any]:
    """The forms of all large batches on this CPU, arguments of `traced_for`."""
    fixed_weights = onednn.fixes_weights(dtype)
    if fixed_weights and dtype != "int8":
        # A TensorFlow built without oneDNN has no operation for fixed weights.
        fixed_weights = bfloat16_products() == "onednn"
    return {"narrow": onednn.is_narrow(), "fixed_weights": fixed_weights}


class _StepOnCpu(CompiledStep):
    """Several steps at the same time on one CPU, without a compiler: a trace takes any shape.

    XLA does not help on a CPU, and oneDNN's graph rewrites do (BERT-base, tokens/s: 1126 with XLA,
    1122 without in float32, 1051 and 2163 in bfloat16). oneDNN makes its kernels by actual shapes.
    """

    def __init__(
        self,
        step: Step,
        weights: Sequence[keras.Variable],
        *,
        longest: int,
        shares_weights: bool,
    ) -> None:
        self._step = step
        with tf.device(_CPU):
            self._variables = [_on_cpu(weight.value) for weight in weights]
        dtypes = [weight.dtype for weight in weights] or ["float32"]
        self._in_int8 = "int8" in dtypes
        self._forms = _forms_on_cpu("int8" if self._in_int8 else dtypes[0])
        if shares_weights:  # arranged weights are a copy
            self._forms["fixed_weights"] = False
        self._long_row = _LONG_ROW_IF_NARROW if self._forms["narrow"] else _LONG_ROW
        # Each graph has its own copy of arranged weights; that for any rows takes longer to trace.
        self._one_graph = self._forms["fixed_weights"] and longest > self._long_row
        self._traced: dict[str, Callable[..., dict[str, tf.Tensor]]] = {}
        streams = min(cores(), MAX_STREAMS)
        self._streams = ThreadPoolExecutor(streams, "step")
        # One more than can run, so that the next is ready when one ends.
        self.in_flight = streams + 1

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        future = self._streams.submit(_run_timed, *self._prepare(batch, self._graph_for(batch)))
        return Started(
            lambda: future.result()[0],
            future.done,
            future.cancel,
            lambda: future.result()[1],
        )

    def run(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As `CompiledStep.run`, without another thread, and with a form for few tokens.

        The calls of a long input have no use for that form: one small batch among many others does
        not repay the trace.
        """
        few_tokens = max(array.size for array in batch.values()) <= _FEW_TOKENS
        # In int8 its last bits would round some values to other integers: cosine 0.997.
        few_tokens = few_tokens and not self._in_int8
        return _run(*self._prepare(batch, "few tokens" if few_tokens else self._graph_for(batch)))

    def _prepare(
        self, batch: Mapping[str, np.ndarray], graph: str
    ) -> tuple[Any, dict[str, tf.Tensor]]:
        """A graph of the step, traced if it is new, and the batch as tensors."""
        inputs = {name: tf.constant(value) for name, value in batch.items()}
        if graph not in self._traced:
            self._traced[graph] = self._trace(inputs, graph)
        return self._traced[graph], inputs

    def _graph_for(self, batch: Mapping[str, np.ndarray]) -> str:
        """The graph that takes the rows of a batch."""
        length = max((array.shape[1] for array in batch.values() if array.ndim > 1), default=0)
        return "any rows" if self._one_graph or length > self._long_row else "short rows"

    def _trace(self, batch: Mapping[str, tf.Tensor], graph: str) -> Any:
        self.traces += 1
        choices = dict(self._forms)
        if graph == "any rows":
            choices["row_limit"] = self._long_row
        elif graph == "few tokens":  # which gain nothing from weights that cost memory
            choices |= {"few_tokens": True, "fixed_weights": False}

        @tf.function(autograph=False)
        def run(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with tf.device(_CPU), traced_for("cpu", **choices):
                return self._step([variable.value() for variable in self._variables], batch)

        traced = run.get_concrete_function(
            {
                name: tf.TensorSpec([None] * value.shape.rank, value.dtype)
                for name, value in batch.items()
            }
        )
        # The first call rewrites the graph and arranges the weights, as calls that come meanwhile
        # would do again. For few tokens oneDNN would arrange them in another way.
        length = max(value.shape[-1] for value in batch.values())
        rows = 2 * _FEW_TOKENS // length + 1
        traced({name: value[:rows] for name, value in batch.items()})
        return traced


class _StepByShape(CompiledStep):
    """One step at a time on all devices, traced and compiled for each shape."""

    def __init__(self, step: Step, weights: Sequence[keras.Variable], devices: Devices) -> None:
        self._devices = devices
        strategy = devices.strategy
        if strategy is None:
            variables = [weight.value for weight in weights]
        else:
            with strategy.scope():
                variables = [
                    tf.Variable(weight.value, trainable=False, name=weight.name)
                    for weight in weights
                ]

        # On a TPU everything is XLA already. On GPUs XLA compiles the work of one GPU: it cannot
        # hold the variables of several.
        compiled = step
        if devices.kind == "gpu":
            compiled = tf.function(step, jit_compile=True, autograph=False)

        def run_on_one(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with traced_for(devices.kind):
                return compiled([variable.value() for variable in variables], batch)

        @tf.function(autograph=False, reduce_retracing=devices.kind == "cpu")
        def run(batch: Any) -> Any:
            self.traces += 1
            return run_on_one(batch) if strategy is None else strategy.run(run_on_one, (batch,))

        self._run = run

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        inputs = {name: tf.constant(value) for name, value in batch.items()}
        strategy = self._devices.strategy
        self._devices.check_rows(len(next(iter(batch.values()))))
        with device_errors_explained(batch, _lacks_memory):
            if strategy is None:
                outputs = self._run(inputs)
            else:
                outputs = self._run(_share_out(inputs, strategy, self._devices.count))

        def results() -> dict[str, np.ndarray]:
            with device_errors_explained(batch, _lacks_memory):
                return {name: _gathered(value, strategy) for name, value in outputs.items()}

        return Started(results)


def _gathered(value: Any, strategy: tf.distribute.Strategy | None) -> np.ndarray:
    """The parts of an output from all devices, joined: [B, …]."""
    if strategy is None:
        values: np.ndarray = value.numpy()
        return values
    return np.concatenate([v.numpy() for v in strategy.experimental_local_results(value)])


def _lacks_memory(error: Exception) -> bool:
    return isinstance(error, tf.errors.ResourceExhaustedError)


def _on_cpu(variable: tf.Variable) -> tf.Variable:
    """The variable, or a copy of one that Keras put on a GPU."""
    if tf.DeviceSpec.from_string(variable.device).device_type in (None, "CPU"):
        return variable
    return tf.Variable(variable, trainable=False)


def _run(step: Any, batch: dict[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in step(batch).items()}


def _run_timed(
    step: Any, batch: dict[str, tf.Tensor]
) -> tuple[dict[str, np.ndarray], tuple[float, float]]:
    began = time.monotonic()
    outputs = _run(step, batch)
    return outputs, (began, time.monotonic())


def _share_out(batch: Mapping[str, tf.Tensor], strategy: tf.distribute.Strategy, count: int) -> Any:
    """The batch as one equal slice of rows for each replica."""
    share = next(iter(batch.values())).shape[0] // count

    def slices(context: Any) -> dict[str, tf.Tensor]:
        start = context.replica_id_in_sync_group * share
        return {name: value[start : start + share] for name, value in batch.items()}

    return strategy.experimental_distribute_values_from_function(slices)
