"""Facts about a benchmark's machine: the processor, and the versions of the programs."""

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from benchmarking.programs.base import threads

# The flags that decide the speed of matrix products.
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
_PACKAGES = (
    "bert_features",
    "tensorflow",
    "keras",
    "numpy",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "onnxruntime",
    "openvino",
)


def describe_machine() -> dict[str, Any]:
    """The processor, its cores and flags, the memory and the versions."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = set(_field(cpuinfo, "flags").split())
    memory = int(_field(Path("/proc/meminfo").read_text(), "MemTotal").split()[0])
    return {
        "cpu": _field(cpuinfo, "model name") or platform.processor(),
        "family_model_stepping": [
            _field(cpuinfo, name) for name in ("cpu family", "model", "stepping")
        ],
        "cores": threads(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(memory / 2**20, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
