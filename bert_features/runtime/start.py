"""make_runtime: starts TensorFlow or JAX on the devices of this machine."""

from bert_features.errors import check_process
from bert_features.machine.names import Device, RuntimeName
from bert_features.machine.selection import choose_runtime
from bert_features.runtime.base import Runtime


def make_runtime(name: RuntimeName = "auto", device: Device = "auto") -> Runtime:
    """Starts the runtime on the wanted device.

    Raises:
      ConfigError: the device is not here, or Keras runs on another backend than that runtime.
      DeviceError: see `check_process`.
      MissingExtraError: JAX is wanted but not installed.
    """
    check_process()
    if choose_runtime(name, device) == "jax":
        from bert_features.runtime.jax import JaxRuntime

        return JaxRuntime(device)
    from bert_features.runtime.tensorflow import TensorFlowRuntime

    return TensorFlowRuntime(device)
