"""Problems that keep this program from the TPU, found before TensorFlow or JAX is imported.

Wheels are judged by their metadata, because importing a wrong pair may end the process. Every
problem is one clause that says what is wrong and what to do.
"""

import importlib.util
import os
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bert_features.errors import ConfigError
from bert_features.machine import hardware
from bert_features.machine.names import ABSENT, Device

# tensorflow-tpu 2.20.0 works with these; `import tensorflow` beside 0.0.34, 0.0.43.2 or 0.0.51
# ends the process: "ConfigureDistributedTpuOp_DoWork not available in this library".
_OLDEST, _TOO_NEW = "0.0.14", "0.0.31"
LIBTPU_RANGE = f">={_OLDEST},<{_TOO_NEW}"
_SET_UP = "bash scripts/setup_tpu.sh makes an environment that works"
_USE_JAX = (
    "JAX is here and may drive it: pass --runtime jax; in Python set KERAS_BACKEND=jax before "
    "Keras and TensorFlow are imported"
)

# For TensorFlow's client of PJRT, the interface to new TPUs. It reads these variables once, when it
# is imported.
_USE_PJRT = "NEXT_PLUGGABLE_DEVICE_USE_C_API"
_PJRT_LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"

# The smallest slice, which does not exist. With these set, libtpu does not ask the network.
_NO_METADATA_QUERIES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}

REMOTE_TPU_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
_VISIBLE_CHIPS_VARIABLES = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
_ANSWER_SECONDS = 5.0


def remote_tpu(environment: Mapping[str, str] = os.environ) -> str | None:
    """The name or address of a TPU that is reached over the network, from the environment."""
    values = (environment.get(name, "") for name in REMOTE_TPU_VARIABLES)
    return next((value for value in values if value not in ("", "local")), None)


def refuse_silent_tpu(resolver: Any) -> None:
    """Raises OSError if a host of a TPU takes no connection: TensorFlow would wait for ever.

    Args:
      resolver: TensorFlow's `TPUClusterResolver`; one of the TPU of this machine has no hosts.
    """
    for address in resolver.cluster_spec().as_dict().get("worker", []):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
        except OSError as error:
            raise OSError(f"{address} does not answer: {error}") from error


def refuse_absent_tpu(device: Device) -> None:
    """Raises ConfigError if a TPU is wanted, and there is none here or over the network."""
    if device == "tpu" and not hardware.tpu_chips() and remote_tpu() is None:
        raise ConfigError("no TPU: this machine has none; pass device='auto' to take what is here")


def device_problem() -> str | None:
    """The reason why no framework can open the chips of this machine; None if one can."""
    chips = hardware.tpu_chips()
    if not chips:
        return ABSENT
    files = hardware.tpu_device_files()
    named = f"the {chips} {hardware.tpu_generation()} chip(s) of this machine"
    if not files:
        return (
            f"{named} have no device files here, /dev/accel* or /dev/vfio/*; a container needs "
            "--privileged"
        )
    closed = [path for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return f"this user may not open {closed[0]}; run as one who may, or change its permissions"
    # Programs that share the chips of a machine set these, and each has its own chips.
    if any(os.environ.get(name) for name in _VISIBLE_CHIPS_VARIABLES):
        return None
    for holder, name in hardware.holders_of(files).items():
        return f"process {holder} ({name}) holds {named}; wait for it, or end it: kill {holder}"
    return None


def tensorflow_version() -> str | None:
    """The version of TensorFlow, whichever of its builds is installed."""
    return installed("tensorflow") or installed("tensorflow-tpu")


def tensorflow_problem() -> str | None:
    """The reason why the installed TensorFlow cannot drive a TPU; None if it can."""
    return _plain_tensorflow() or _unfit_libtpu()


def refuse_what_aborts() -> None:
    """Raises ConfigError where `import tensorflow` would end the process.

    That is where tensorflow-tpu is installed with a libtpu that it does not work with.
    """
    if installed("tensorflow-tpu") and installed("libtpu") and not installed("tensorflow"):
        problem = _unfit_libtpu()
        if problem:
            raise ConfigError(f"TensorFlow cannot be imported: {problem}")


def choose_pjrt(device: Device = "auto") -> None:
    """Lets a TensorFlow that is imported from now on drive the TPU of this machine through PJRT.

    Does nothing for `cpu`, or where the environment has these variables already. Without a TPU, it
    keeps libtpu from asking Google's metadata server: off Google Cloud that takes minutes.
    """
    library = _libtpu_path()
    if library is None or tensorflow_problem():
        return
    if not hardware.tpu_chips():
        for name, value in _NO_METADATA_QUERIES.items():
            os.environ.setdefault(name, value)
        return
    if device != "cpu" and _USE_PJRT not in os.environ and _PJRT_LIBRARY not in os.environ:
        os.environ[_USE_PJRT] = "true"
        os.environ[_PJRT_LIBRARY] = str(library)


def _plain_tensorflow() -> str | None:
    plain, tpu_build = installed("tensorflow"), installed("tensorflow-tpu")
    remedy = _USE_JAX if installed("jax") and installed("libtpu") else _SET_UP
    if tpu_build is None:
        return f"tensorflow {plain} has no TPU support, tensorflow-tpu has; {remedy}"
    if plain is not None:
        return (
            f"tensorflow {plain} was installed over tensorflow-tpu and replaced its files; {remedy}"
        )
    return None


def _unfit_libtpu() -> str | None:
    from packaging.version import parse

    version = installed("libtpu")
    if version is None:
        return f"libtpu is not installed; pip install 'libtpu{LIBTPU_RANGE}'"
    if parse(_OLDEST) <= parse(version) < parse(_TOO_NEW):
        return None
    age = "old" if parse(version) < parse(_OLDEST) else "new"
    return f"libtpu {version} is too {age} for tensorflow-tpu; pip install 'libtpu{LIBTPU_RANGE}'"


def installed(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _libtpu_path() -> Path | None:
    spec = importlib.util.find_spec("libtpu")
    return Path(spec.origin).parent / "libtpu.so" if spec and spec.origin else None
