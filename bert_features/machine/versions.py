"""What computes on this machine beside the settings: libraries, their variables, processors."""

import importlib.metadata
import os
import platform

from bert_features.machine.tpu_installation import installed, tensorflow_version

_PACKAGES = ("tensorflow-text", "tokenizers", "keras", "numpy")
# What makes the libraries compute in another way.
_VARIABLES = (
    *("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "LIBTPU_INIT_ARGS"),
)


def own_version() -> str:
    """The version of this package; `unknown` for a clone on sys.path that is not installed."""
    return installed("bert_features") or "unknown"


def find_versions(runtime: str) -> dict[str, str | None]:
    """The versions on this machine of what computes with a runtime, by package."""
    names = [*_PACKAGES, *(["jax", "jaxlib"] if runtime == "jax" else [])]
    versions: dict[str, str | None] = {name: importlib.metadata.version(name) for name in names}
    ours = {"bert_features": own_version(), "tensorflow": tensorflow_version()}
    return versions | ours | {"python": platform.python_version()}


def find_variables() -> dict[str, str | None]:
    """The environment variables that make these libraries compute in another way."""
    return {name: os.environ.get(name) for name in _VARIABLES}
