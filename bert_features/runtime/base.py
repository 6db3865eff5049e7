"""What a runtime is: devices, and a device step compiled and spread over them."""

import abc
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from bert_features.errors import DeviceError

# What `slowdown` times: a feed-forward product of a small BERT, for some hundred tokens.
_PROBE_SHAPES = ((512, 384), (384, 1536))
_PROBES = 5

# (values of the weights, batch) -> outputs; pure.
Step = Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]]


class Devices(Protocol):
    """The devices of a run."""

    @property
    def kind(self) -> str:
        """`tpu`, `gpu` or `cpu`."""

    @property
    def count(self) -> int:
        """How many."""

    def describe(self) -> str:
        """One line for the log: which they are, and why no better ones."""


@dataclass(frozen=True)
class Started:
    """A batch under way; called, it waits for the results, [B, …] each.

    Attributes:
      wait: what a call does.
      done: whether that would return at once; False where it cannot be known.
      cancel: drops it, unless it is computing already.
    """

    wait: Callable[[], dict[str, np.ndarray]]
    done: Callable[[], bool] = lambda: False
    cancel: Callable[[], object] = lambda: None

    def __call__(self) -> dict[str, np.ndarray]:
        """The results."""
        return self.wait()


class CompiledStep(abc.ABC):
    """A device step with its weights in place.

    Attributes:
      traces: how often it was traced so far.
      in_flight: how many batches to start before waiting for the first of them.
    """

    traces = 0
    in_flight = 2  # while one computes, the next is on its way

    @abc.abstractmethod
    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        """Starts one batch of arrays [B, S].

        Raises:
          ConfigError: the batch cannot be shared out evenly.
        """


class Runtime(abc.ABC):
    """Runs a device step on the devices of one machine.

    Attributes:
      name: as `--runtime` has it.
      devices: what it runs on.
      process: of several processes that share out a job, one on each machine of a slice, which
        this is, from 0, and how many there are.
      any_shape: whether batches of any shape cost no compilation.
    """

    name: Literal["tensorflow", "jax"]
    devices: Devices
    process: tuple[int, int] = (0, 1)
    any_shape: bool = False

    @property
    def batching(self) -> dict[str, int]:
        """What `TextInputFn` must know of it, as entries of its params."""
        return {"num_devices": self.devices.count, "whole_batches": not self.any_shape}

    @abc.abstractmethod
    def compile(self, step: Step, weights: Sequence[Any]) -> CompiledStep:
        """Places the weights, Keras variables, and prepares the step."""

    @abc.abstractmethod
    def bfloat16_slowdown(self) -> float:
        """How much longer a bfloat16 product takes than the same in float32; measured."""


@contextlib.contextmanager
def memory_errors_explained(
    batch: Mapping[str, np.ndarray], lacks_memory: Callable[[Exception], bool]
) -> Iterator[None]:
    """Turns a backend's lack of memory into what to do about it.

    Args:
      batch: what was computed, arrays [B, S].
      lacks_memory: whether an error of the backend says that.

    Raises:
      DeviceError: the batch does not fit.
    """
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        rows, length = next(iter(batch.values())).shape
        raise DeviceError(
            f"a batch of {rows} rows of {length} tokens does not fit the device's memory; pass "
            f"a --batch-tokens below {rows * length}"
        ) from error


def slowdown(
    product: Callable[[Any, Any], Any], convert: Callable[[np.ndarray, str], Any]
) -> float:
    """How much longer a bfloat16 product takes than the same in float32.

    Measured, in some 50 ms: what a CPU says of itself (AVX512-BF16, AMX) does not tell; virtual
    machines emulate, and clocks differ.

    Args:
      product: computes the matrix product of two of the backend's arrays, and waits for it.
      convert: makes one of them from a NumPy array and a dtype's name.
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
