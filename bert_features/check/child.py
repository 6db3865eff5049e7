"""Run as a child process: imports a runtime stage by stage, and reports the devices it lists.

A stage writes one JSON line when it begins, `{"stage": …}`, and one when it ends, with `result` or
`error`, so that a crash leaves a trace. Standard output carries only these lines; the output of
libraries goes to standard error.
"""

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from bert_features.machine import hardware, jax_on_cpus, tpu_installation


def main(runtime: str, seconds: float, *, with_tpu: bool) -> None:
    """Runs the stages of a runtime, `tensorflow` or `jax`; if the first fails, no other is run.

    After these seconds SIGALRM ends this process, whatever becomes of its parent. `with_tpu` makes
    TensorFlow initialise the TPU, as a run does.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # Imports may abort here; a core dump of gigabytes must not follow.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lines = os.dup(1)
    os.dup2(2, 1)

    def report(**message: Any) -> None:
        os.write(lines, json.dumps(message).encode() + b"\n")

    os.environ["KERAS_BACKEND"] = runtime
    # Otherwise JAX reserves three quarters of a GPU's memory, which TensorFlow's child needs.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    for stage, run in _STAGES[runtime].items():
        if stage == "tpu" and not with_tpu:
            continue
        report(stage=stage)
        try:
            report(stage=stage, result=run())
        except Exception as error:  # a broken package may raise anything
            last = (str(error).strip().splitlines() or [""])[-1]
            report(stage=stage, error=f"{type(error).__name__}: {last}"[:300])
            if stage == runtime:
                raise SystemExit(1) from error


def _version(package: str) -> dict[str, Any]:
    return {"version": importlib.import_module(package).__version__}


def _tensorflow() -> dict[str, Any]:
    tpu_installation.choose_pjrt()  # as a run does, so that both reach the TPU in the same way
    return _version("tensorflow")


def _gpus() -> dict[str, Any]:
    """Name and usable bytes of each GPU; no GPU memory is reserved."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return {"devices": []}
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    # get_memory_info reports the bytes in use; only this reports the total.
    from tensorflow.python.client import device_lib

    local = [device for device in device_lib.list_local_devices() if device.device_type == "GPU"]
    details = tf.config.experimental.get_device_details
    return {
        "devices": [
            {
                "name": details(gpu).get("device_name", gpu.name),
                "memory_bytes": int(device.memory_limit),
            }
            for gpu, device in zip(gpus, local, strict=True)
        ]
    }


def _tpus() -> dict[str, Any]:
    """The TPU cores that a run takes; TensorFlow does not report their memory."""
    import tensorflow as tf

    name = None if hardware.tpu_chips() else tpu_installation.remote_tpu()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name or "local")
    tpu_installation.refuse_silent_tpu(resolver)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = tf.config.list_logical_devices("TPU")
    return {"devices": [{"name": core.name, "memory_bytes": None} for core in cores]}


def _jax_devices() -> dict[str, Any]:
    """Platform, name and usable bytes of each device; None if the backend reports no bytes."""
    import jax

    return {
        "devices": [
            {
                "platform": device.platform,
                "name": device.device_kind,
                "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
            }
            for device in jax.local_devices()
        ]
    }


def _jax_numbers() -> dict[str, Any]:
    """Whether JAX computes right numbers on the CPU by itself; fails if it does not for a run."""
    import jax

    cpu = jax.devices("cpu")[0]
    jax_on_cpus.compiler_options(cpu)
    return _version("jaxlib") | {"right": jax_on_cpus.computes_right(cpu)}


_STAGES: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
    "tensorflow": {
        "tensorflow": _tensorflow,
        "tensorflow_text": lambda: _version("tensorflow_text"),
        "keras": lambda: _version("keras"),
        "gpu": _gpus,
        "tpu": _tpus,
    },
    "jax": {
        "jax": lambda: _version("jax"),
        "devices": _jax_devices,
        "numbers": _jax_numbers,
        "keras": lambda: _version("keras"),
    },
}


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), with_tpu="--with-tpu" in sys.argv)
