"""Run as a child process: imports JAX and Keras on it, and reports the devices that JAX sees."""

import os
from typing import Any

from bert_features.doctor.stages import Stages


def main() -> None:
    """Reports the stages `jax`, `devices` and `keras`."""
    os.environ["KERAS_BACKEND"] = "jax"
    # Otherwise JAX reserves three quarters of a GPU's memory, which TensorFlow's child needs.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    stages = Stages()
    with stages.stage("jax", vital=True) as result:
        import jax

        result["version"] = jax.__version__
    with stages.stage("devices") as result:
        result["devices"] = [_describe(device) for device in jax.local_devices()]
    with stages.stage("keras") as result:
        import keras

        result["version"] = keras.__version__


def _describe(device: Any) -> dict[str, Any]:
    """Platform, name and usable bytes of a device; None if the backend reports no bytes."""
    stats = device.memory_stats() or {}
    return {
        "platform": device.platform,
        "name": device.device_kind,
        "memory_bytes": stats.get("bytes_limit"),
    }


if __name__ == "__main__":
    main()
