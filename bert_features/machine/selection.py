"""The choice of the runtime. Keras has one backend per process, so it is chosen once.

Nothing here imports TensorFlow, JAX or Keras before the choice is made.
"""

import importlib.util
import os
import sys
from typing import get_args

from bert_features.errors import ConfigError, MissingExtraError
from bert_features.machine.hardware import nvidia_gpus, tpu_chips
from bert_features.machine.names import Device, RuntimeName
from bert_features.machine.tpu_installation import installed, tensorflow_problem

_BACKEND = "KERAS_BACKEND"
_RUNTIMES = ("tensorflow", "jax")


def choose_runtime(name: RuntimeName = "auto", device: Device = "auto") -> str:
    """The runtime to use: `tensorflow` or `jax`; the arguments are the settings.

    `auto` follows a Keras that is imported already, then the environment's KERAS_BACKEND; else it
    is TensorFlow, or JAX where there is a TPU or a GPU that only JAX can drive here.

    Raises:
      ConfigError: `name` is not a runtime, or Keras runs on another backend.
      MissingExtraError: JAX is wanted but not installed.
    """
    if name not in get_args(RuntimeName):
        raise ConfigError(f"runtime is {name!r}; allowed: {', '.join(get_args(RuntimeName))}")
    runtime = name if name != "auto" else backend_set() or _for_hardware(device)
    if runtime == "jax" and not _is_importable("jax"):
        raise MissingExtraError("jax", "jax")
    return runtime


def activate_runtime(name: RuntimeName = "auto", device: Device = "auto") -> None:
    """Sets Keras' backend for a runtime. Call it before importing TensorFlow, which imports Keras.

    A Keras that is imported already stays as it is. With `auto`, KERAS_BACKEND stays too. Errors as
    `choose_runtime`.
    """
    if "keras" in sys.modules:
        return
    runtime = choose_runtime(name, device)
    # Keras' own default is TensorFlow, but a ~/.keras/keras.json may name another.
    if name != "auto" or runtime != "tensorflow":
        os.environ[_BACKEND] = runtime


def backend_set() -> str | None:
    """The backend that Keras has, or that the environment sets."""
    if "keras" in sys.modules:
        backend = sys.modules["keras"].backend.backend()
    else:
        backend = os.environ.get(_BACKEND)
    if backend and backend not in _RUNTIMES:
        raise ConfigError(
            f"Keras runs on {backend} (KERAS_BACKEND); allowed: {' or '.join(_RUNTIMES)}. It has "
            "one backend in a process: set KERAS_BACKEND=tensorflow before anything imports Keras, "
            f"in another process if this one needs {backend}"
        )
    return backend or None


def _for_hardware(device: Device) -> str:
    """TensorFlow, unless only JAX can drive the best device."""
    if device in ("auto", "tpu") and tpu_chips():
        # jax alone cannot drive a TPU, jax[tpu] can.
        has_libtpu = _is_importable("libtpu") or "TPU_LIBRARY_PATH" in os.environ
        tensorflow_drives = tensorflow_problem() is None or not has_libtpu
    elif device in ("auto", "gpu") and nvidia_gpus():
        # tensorflow[and-cuda] installs these, and TensorFlow finds CUDA through them. JAX's plugin
        # for CUDA 13 (0.7 and later) installs others.
        has_cuda = all(installed(f"nvidia-{name}-cu12") for name in ("cudnn", "cuda-nvcc"))
        jax_drives = any(installed(f"jax-cuda{version}-plugin") for version in (12, 13))
        tensorflow_drives = has_cuda or not jax_drives
    else:
        return "tensorflow"
    return "tensorflow" if tensorflow_drives or not _is_importable("jax") else "jax"


def _is_importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
