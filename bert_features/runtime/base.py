"""The interface of a runtime: its devices, and a device step compiled and spread over them."""

import abc
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from bert_features.errors import ConfigError, DeviceError, first_line
from bert_features.machine import onednn
from bert_features.machine.hardware import place_among_hosts
from bert_features.machine.names import ABSENT, Device, describe_devices
from bert_features.machine.tpu_errors import advice

if TYPE_CHECKING:
    from bert_features.encoder.step import Precision

logger = logging.getLogger("bert_features")

_KINDS = ("tpu", "gpu", "cpu")  # best first
_Found = TypeVar("_Found")

# The product that `slowdown` times: feed-forward of a small BERT, for 512 tokens.
_PROBE_SHAPES = ((512, 384), (384, 1536))
_PROBES = 5
# A bfloat16 product that takes longer than this many float32 ones is worth a warning.
_TOLERATED_SLOWDOWN = 1.1

# (values of the weights, batch) -> outputs; pure.
Step = Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Attributes:
      kind: `tpu`, `gpu` or `cpu`.
      reason: why a better kind that is there was not taken; empty if there is none.
      strategy: how TensorFlow shares work between them, a `tf.distribute.Strategy`; None for a
        single device.
      devices: the devices as JAX has them; empty for TensorFlow.
    """

    kind: str
    count: int
    reason: str = ""
    strategy: Any = None
    devices: tuple[Any, ...] = ()

    def describe(self) -> str:
        """One line for the log: the devices, and `reason`."""
        because = f" ({self.reason})" if self.reason else ""
        driver = " with JAX" if self.devices else ""
        return f"running on {describe_devices(self.kind, self.count)}{driver}{because}"

    def check_rows(self, rows: int) -> None:
        """Refuses a number of rows that the devices cannot share evenly; raises ConfigError."""
        if rows % self.count:
            raise ConfigError(
                f"batch_size {rows} is not a multiple of the {self.count} devices; "
                f"take {-(-rows // self.count) * self.count}"
            )


def resolve(device: str, find: Callable[[str], _Found | str]) -> tuple[str, _Found, str]:
    """Finds the wanted kind of device, or the best there is: TPU, then GPU, then CPU.

    Args:
      device: the setting `device`.
      find: gives the devices of a kind, or the reason why there are none.

    Returns:
      The kind, what was found, and why a better kind that is there was not taken.

    Raises:
      ConfigError: the wanted kind is absent, or is not one of `auto`, `tpu`, `gpu`, `cpu`.
    """
    if device not in get_args(Device):
        raise ConfigError(f"device is {device!r}; allowed: {', '.join(get_args(Device))}")
    reasons: list[str] = []
    for kind in _KINDS if device == "auto" else [device]:
        devices = find(kind)
        if not isinstance(devices, str):
            return kind, devices, "; ".join(reasons)
        if devices != ABSENT or device != "auto":
            reasons.append(f"no {kind.upper()}: {devices}")
    # Every machine has a CPU, but JAX_PLATFORMS can hide it from JAX.
    remedy = "unset JAX_PLATFORMS"
    if device in ("tpu", "gpu"):
        remedy = "pass device='auto' to take what is here"
    raise ConfigError(f"{'; '.join(reasons)}; {remedy}")


@dataclass(frozen=True)
class Started:
    """A batch under way. A call waits for its outputs, [B, …] each.

    Attributes:
      wait: waits for the outputs and gives them.
      done: whether `wait` would return at once; False where that is unknown.
      cancel: drops the batch, unless it is being computed already.
      times: when computing began and ended, by `time.monotonic`, once `wait` has returned; None
        where the runtime does not know.
    """

    wait: Callable[[], dict[str, np.ndarray]]
    done: Callable[[], bool] = lambda: False
    cancel: Callable[[], object] = lambda: None
    times: Callable[[], tuple[float, float]] | None = None

    def __call__(self) -> dict[str, np.ndarray]:
        """The outputs, by name."""
        return self.wait()


class CompiledStep(abc.ABC):
    """A device step with its weights in place.

    Attributes:
      traces: number of times the step was traced so far.
      in_flight: number of batches to start before waiting for the first.
    """

    traces = 0
    in_flight = 2  # while one computes, the next is on its way

    @abc.abstractmethod
    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        """Starts one batch of arrays [B, S].

        Raises:
          ConfigError: the devices cannot share the rows evenly.
        """

    def run(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs one batch and waits for its outputs, [B, …] by name; errors are a call's."""
        return self(batch)()


class Runtime(abc.ABC):
    """Runs a device step on the devices of one machine.

    Attributes:
      name: its name, as for `--runtime`.
      any_shape: whether batches of any shape cost no compilation.
    """

    name: Literal["tensorflow", "jax"]
    devices: Devices
    any_shape: bool = False
    _joined: tuple[int, int] = (0, 1)  # where the environment does not say it

    @property
    def process(self) -> tuple[int, int]:
        """(number of this process from 0, number of processes), one on each machine of a job.

        Only runs of a share ask, so that others work whatever the environment says. ConfigError as
        `place_among_hosts`.
        """
        return place_among_hosts() or self._joined

    @property
    def batching(self) -> dict[str, int]:
        """The entries of `TextInputFn`'s params that depend on the devices."""
        return {"num_devices": self.devices.count, "whole_batches": not self.any_shape}

    @abc.abstractmethod
    def compile(
        self,
        step: Step,
        weights: Sequence[Any],
        *,
        longest: int = 0,
        shares_weights: bool = False,
    ) -> CompiledStep:
        """Places the weights on the devices and prepares the step.

        Args:
          step: the pure device step.
          weights: Keras variables, in the order that the step takes their values.
          longest: tokens of the longest rows that come; 0 if that is not known.
          shares_weights: whether it is one of many steps of these weights, so that it should not
            copy them, even where that would be faster.
        """

    def choose_precision(
        self, precision: Literal["auto", "float32", "bfloat16", "int8"]
    ) -> "Precision":
        """The precision of the arithmetic: for `auto` bfloat16 on TPUs, else float32.

        It warns of bfloat16 where it is slower. Raises ConfigError for int8 where it is not.
        """
        if precision == "auto":
            return "bfloat16" if self.devices.kind == "tpu" else "float32"
        if precision == "int8":
            self._check_int8()
        if precision == "bfloat16" and self.devices.kind == "cpu":
            slowdown = self.bfloat16_slowdown()
            if slowdown > _TOLERATED_SLOWDOWN:
                logger.warning(
                    "precision is bfloat16, in which a matrix product takes %.1f times as long as "
                    "in float32 on this CPU; float32 would be faster, and more exact",
                    slowdown,
                )
        return precision

    def _check_int8(self) -> None:
        reason = ""
        if self.name != "tensorflow" or self.devices.kind != "cpu":
            reason = f"this run computes with {self.name} on a {self.devices.kind.upper()}"
        elif not onednn.is_x86():
            reason = "this is an ARM CPU"
        elif off := onednn.find_off():
            reason = f"oneDNN is off: {off.reason}"
        elif not onednn.fixes_weights("int8"):
            reason = f"oneDNN has {onednn.find_class() or 'neither AVX2 nor AVX-512'} here"
            if limit := os.environ.get(onednn.LIMIT):
                reason += f", by {onednn.LIMIT}={limit}"
        if reason:
            raise ConfigError(
                "precision is 'int8', which needs TensorFlow on a CPU with AVX-512 VNNI or AMX, "
                f"and {reason}; pass precision='float32'"
            )

    @abc.abstractmethod
    def bfloat16_slowdown(self) -> float:
        """Measured time of a bfloat16 matrix product, divided by the time in float32."""


@contextlib.contextmanager
def device_errors_explained(
    batch: Mapping[str, np.ndarray], lacks_memory: Callable[[Exception], bool]
) -> Iterator[None]:
    """Turns a backend's out-of-memory error, and a known error of a TPU, into advice.

    Args:
      batch: the arrays [B, S] of the batch; arrays of other ranks do not count.
      lacks_memory: whether an error of the backend means that memory ran out.

    Raises:
      DeviceError: the batch does not fit, or the error is known.
    """
    try:
        yield
    except Exception as error:
        rows, length = next((a.shape for a in batch.values() if a.ndim == 2), (0, 0))
        if hint := advice(error):
            raise DeviceError(
                f"a batch of {rows} rows of {length} tokens fails: {first_line(error)}{hint}"
            ) from error
        if not lacks_memory(error):
            raise
        raise DeviceError(
            f"a batch of {rows} rows of {length} tokens does not fit the device's memory; pass "
            f"batch_tokens below {rows * length}"
        ) from error


def slowdown(
    product: Callable[[Any, Any], Any], convert: Callable[[np.ndarray, str], Any]
) -> float:
    """Time of a bfloat16 matrix product, divided by the time in float32.

    It is measured, in some 50 ms. The flags of a CPU (AVX512-BF16, AMX) do not suffice: virtual
    machines emulate instructions, and clock rates differ. `product` waits for the product of two
    arrays that `convert` makes from a NumPy array and the name of a dtype.
    """
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape, np.float32) for shape in _PROBE_SHAPES]
    seconds = {}
    for dtype in ("float32", "bfloat16"):
        x, y = (convert(array, dtype) for array in arrays)
        times = []
        for _ in range(_PROBES):
            started = time.perf_counter()
            product(x, y)
            times.append(time.perf_counter() - started)
        seconds[dtype] = min(times)
    return seconds["bfloat16"] / seconds["float32"]
