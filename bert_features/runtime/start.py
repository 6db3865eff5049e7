"""make_runtime: starts TensorFlow or JAX on the devices of this machine."""

import os

from bert_features.errors import ConfigError, DeviceError
from bert_features.machine.names import Attention, Device, RuntimeName
from bert_features.machine.selection import choose_runtime
from bert_features.runtime.base import Runtime

_process: int | None = None  # where it was started first


def make_runtime(
    wanted: RuntimeName = "auto", device: Device = "auto", attention: Attention = "auto"
) -> Runtime:
    """Starts the runtime on the wanted device.

    Raises:
      ConfigError: the device is not here, Keras runs on another backend than that runtime, or this
        form of attention cannot be used there.
      MissingExtraError: JAX is wanted but not installed.
    """
    if choose_runtime(wanted, device) == "jax":
        from bert_features.runtime.jax import JaxRuntime

        return JaxRuntime(device, attention)
    if attention == "pallas":
        raise ConfigError.naming(
            "{attention:'pallas'} needs JAX, but the runtime is TensorFlow; pass {runtime:'jax'}, "
            "or {attention:'xla'}"
        )
    from bert_features.runtime.tensorflow import TensorFlowRuntime

    return TensorFlowRuntime(device)


def check_process() -> None:
    """Refuses a process that was forked after TensorFlow or JAX was started.

    Their threads are in its parent alone. It would wait for them for ever.

    Raises:
      DeviceError: it is one.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise DeviceError(
            "this process was forked from one that had an extractor, and cannot compute: the "
            "threads of the model are not in it; start processes by 'spawn' or 'forkserver' "
            "(multiprocessing.get_context), or fork before the first extractor is made"
        )
