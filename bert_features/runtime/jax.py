"""The JAX runtime: a data-parallel mesh over the TPU, GPU or CPU devices of this machine."""

import contextlib
import importlib.util
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bert_features.encoder.forms import check_backend, traced_for
from bert_features.errors import ConfigError, MissingExtraError, first_line
from bert_features.files import cache_dir
from bert_features.machine.hardware import (
    JAX_COORDINATOR,
    JAX_COUNT,
    JAX_INDEX,
    number_of,
    nvidia_gpus,
    tpu_chips,
    warn_of_missing_tpu,
)
from bert_features.machine.jax_on_cpus import compiler_options
from bert_features.machine.names import ABSENT, Device
from bert_features.machine.tpu_errors import advice
from bert_features.machine.tpu_installation import device_problem
from bert_features.runtime.base import (
    CompiledStep,
    Devices,
    Runtime,
    Started,
    Step,
    device_errors_explained,
    resolve,
    slowdown,
)

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
except ImportError as error:
    raise MissingExtraError("jax", "jax") from error

logger = logging.getLogger("bert_features")

_AMPERE = 8  # the first generation whose compute capability cuDNN's attention asks for
_DATA = "data"  # the mesh's only axis
# Batches under way at once: one is computed, one is being sent, one is being fetched.
_IN_FLIGHT = 3
_NAMES = {"tpu": {"tpu"}, "gpu": {"gpu", "cuda", "rocm"}, "cpu": {"cpu"}}  # in JAX_PLATFORMS
# Asked before JAX, whose search for a driver may take minutes.
_PRESENT = {"tpu": tpu_chips, "gpu": nvidia_gpus}
_INSTALL = {"tpu": "pip install 'jax[tpu]'", "gpu": "pip install 'jax[cuda13]'"}
_PLUGINS = {"tpu": ("libtpu",), "gpu": ("jax_cuda13_plugin", "jax_cuda12_plugin")}
# The second: https://github.com/jax-ml/jax/issues/7822
_OUT_OF_MEMORY = re.compile("RESOURCE_EXHAUSTED|unlikely to have enough (device )?memory")


def resolve_devices(device: Device = "auto") -> Devices:
    """Takes the wanted kind of device, or the best there is: TPU, then GPU, then CPU.

    Each of several processes takes the devices of its own machine.

    Raises:
      ConfigError: the wanted kind is absent, or is not one of `auto`, `tpu`, `gpu`, `cpu`.
    """
    kind, devices, reason = resolve(device, _find)
    return Devices(kind, len(devices), reason, devices=devices)


def _find(kind: str) -> tuple[Any, ...] | str:
    """The devices of a kind on this machine, or the reason why there are none."""
    if kind in _PRESENT and not _PRESENT[kind]():
        return ABSENT
    allowed = _platforms()
    if allowed and not _NAMES[kind].intersection(allowed.split(",")):
        return f"JAX is set to {allowed} (JAX_PLATFORMS)"
    try:
        return tuple(jax.local_devices(backend=kind))
    except RuntimeError as error:
        if _searched_for:  # JAX searches once in a process
            return "this process has used JAX for the CPU alone; start another"
        return _reason(kind, first_line(error) + advice(error))


def _reason(kind: str, message: str) -> str:
    """The cause behind JAX's message about a kind of device that this machine has."""
    if kind == "tpu" and (problem := device_problem()):
        return problem
    if kind in _PLUGINS and not any(importlib.util.find_spec(name) for name in _PLUGINS[kind]):
        return f"{message}; JAX drives it after: {_INSTALL[kind]}"
    return message


@contextlib.contextmanager
def traced_for_jax(device_kind: str, *, fused: bool = False) -> Iterator[None]:
    """Inside it, JAX traces a step in the forms for a device, with exact float32 products.

    By default a TPU rounds the factors of float32 products to bfloat16, a GPU to TF32. The device
    step itself takes the default for an encoder in bfloat16, see `forms.products_traced_in`.

    Args:
      device_kind: `tpu`, `gpu` or `cpu`.
      fused: whether attention on a GPU is cuDNN's kernel.
    """
    with traced_for(device_kind, fused=fused), jax.default_matmul_precision("highest"):
        yield


def shared_out(
    step: Callable[[Any, Any], dict[str, Any]], mesh: Mesh
) -> Callable[[Any, Any], dict[str, Any]]:
    """The step on its share of the rows, on every device of a mesh with the axis `data`.

    Each device computes the whole step for its own rows, so none can wait for another's; their
    number divides B. https://docs.jax.dev/en/latest/notebooks/shard_map.html
    """
    row_spec = PartitionSpec(_DATA)
    # Nothing is the same on all devices, except the weights: there is nothing to check.
    return jax.shard_map(
        step, mesh=mesh, in_specs=(PartitionSpec(), row_spec), out_specs=row_spec, check_vma=False
    )


class JaxRuntime(Runtime):
    """Runs a device step on the devices of one machine, as one compiled program over all devices.

    On several machines (a slice of a TPU pod) each runs its own process over its own devices. They
    share the input, not the batches, so that none waits for another.

    Args:
      device: kind of device to take.

    Raises:
      ConfigError: that kind is absent, Keras runs on another backend than JAX, the other processes
        of the job cannot be reached, or this jaxlib computes wrong numbers on CPUs.
    """

    name: Literal["jax"] = "jax"

    def __init__(self, device: Device = "auto") -> None:
        check_backend("jax", "the JAX runtime")
        _leave_accelerators_to_jax()
        with _no_search_for_absent_platforms(device):
            joined = _join()  # before a device is started
            self.devices = resolve_devices(device)
            compiler_options(self.devices.devices[0])
        self._joined = joined or (jax.process_index(), jax.process_count())
        warn_of_missing_tpu(self.devices.kind)
        if self.devices.kind != "cpu":
            _keep_compiled_steps()

    def compile(
        self,
        step: Step,
        weights: Sequence[Any],
        *,
        longest: int = 0,
        shares_weights: bool = False,
    ) -> CompiledStep:
        """Puts the weights on every device, once. Each shape is compiled at its first use.

        From then on the variables hold the values on the devices, so that no second copy stays.
        """
        logger.info("%s", self.devices.describe())
        return _ShardedStep(step, weights, self.devices)

    def bfloat16_slowdown(self) -> float:
        """See `Runtime`; measured in some 50 ms."""

        def product(x: Any, y: Any) -> Any:
            return jax.block_until_ready(jnp.matmul(x, y))

        return slowdown(product, lambda array, dtype: jnp.asarray(array, dtype))


class _ShardedStep(CompiledStep):
    """The step as one program over a mesh: all weights on every device, rows shared."""

    in_flight = _IN_FLIGHT

    def __init__(self, step: Step, weights: Sequence[Any], devices: Devices) -> None:
        self._devices = devices
        # cuDNN's attention runs on NVIDIA's GPUs from Ampere on.
        capability = str(getattr(devices.devices[0], "compute_capability", ""))
        generation = re.fullmatch(r"(\d+)\.\d+", capability)
        fused = generation is not None and int(generation[1]) >= _AMPERE
        mesh = Mesh(np.array(devices.devices), (_DATA,))
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._row_sharding = NamedSharding(mesh, PartitionSpec(_DATA))
        self._weights = []
        for variable in weights:
            value = jax.device_put(variable.value, everywhere)
            variable.assign(value)
            self._weights.append(value)

        def run(weights: Sequence[Any], batch: Mapping[str, Any]) -> dict[str, Any]:
            self.traces += 1
            with traced_for_jax(devices.kind, fused=fused):
                return step(weights, batch)

        self._run = jax.jit(
            shared_out(run, mesh),
            in_shardings=(everywhere, self._row_sharding),
            out_shardings=self._row_sharding,
            donate_argnums=1,
            compiler_options=compiler_options(devices.devices[0]),
        )

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Started:
        self._devices.check_rows(len(next(iter(batch.values()))))
        with device_errors_explained(batch, _lacks_memory):
            inputs = jax.device_put(dict(batch), self._row_sharding)
            with warnings.catch_warnings():
                # Inputs are donated so that the step can use their memory. No output has their
                # shape.
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                outputs: dict[str, Any] = self._run(self._weights, inputs)
            for value in outputs.values():
                value.copy_to_host_async()

        def wait() -> dict[str, np.ndarray]:
            with device_errors_explained(batch, _lacks_memory):
                return {name: np.asarray(value) for name, value in outputs.items()}

        return Started(wait, lambda: all(value.is_ready() for value in outputs.values()))


def _leave_accelerators_to_jax() -> None:
    """Keeps TensorFlow, which tokenises, from taking a GPU's or a TPU's memory."""
    try:
        import tensorflow as tf
    except ImportError:  # steps alone need none
        return
    for kind in ("GPU", "TPU"):
        # Too late if TensorFlow has them already; then both share them.
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.set_visible_devices([], kind)


_searched_for: set[str] = set()  # the platforms, if not all


@contextlib.contextmanager
def _no_search_for_absent_platforms(device: Device) -> Iterator[None]:
    """Keeps JAX from searching for absent or unwanted devices, which can take long.

    It has no effect on a JAX that has searched already.
    """
    if _platforms() or (device != "cpu" and (tpu_chips() or nvidia_gpus())):
        yield
        return
    before = jax.config.jax_platforms  # type: ignore[attr-defined]
    jax.config.update("jax_platforms", "cpu")
    _searched_for.add("CPU")
    try:
        yield
    finally:  # a later run of this process may want what this one did not
        jax.config.update("jax_platforms", before)


def _join() -> tuple[int, int] | None:
    """The number of this process and the number of processes, asked of JAX's coordinator, if any.

    The processes join to learn their numbers and part at once. A process that stayed joined would
    wait for the others at its end, for five minutes, and fail with the first that fails. Raises
    ConfigError if they cannot be reached.
    """
    is_told = os.environ.keys() >= {JAX_COUNT, JAX_INDEX}
    if JAX_COORDINATOR not in os.environ or is_told or jax.distributed.is_initialized():
        return None
    try:
        jax.distributed.initialize(
            num_processes=number_of(JAX_COUNT), process_id=number_of(JAX_INDEX)
        )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{JAX_COORDINATOR} is set, but the processes of the job cannot join: {error} Set "
            f"{JAX_COUNT} and {JAX_INDEX} too, or unset it"
        ) from error
    try:
        return jax.process_index(), jax.process_count()
    finally:
        jax.distributed.shutdown()


def _platforms() -> str:
    """Those JAX is restricted to, by JAX_PLATFORMS or by its config; none for no restriction."""
    return jax.config.jax_platforms or ""  # type: ignore[attr-defined]


def _keep_compiled_steps() -> None:
    """Keeps what is compiled for seconds in the cache, for the next process; a choice made stands.

    https://docs.jax.dev/en/latest/persistent_compilation_cache.html
    """
    if jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    with contextlib.suppress(ImportError):  # platformdirs, where there is little beside JAX
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "jax"))


def _lacks_memory(error: Exception) -> bool:
    return isinstance(error, jax.errors.JaxRuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))
