"""The models of this machine's processors, as far as numbers may depend on them.

Importing this imports neither TensorFlow nor JAX.
"""

import re
from pathlib import Path

from bert_features.machine import hardware

# Lines of /proc/cpuinfo that tell one kind of CPU from another, the first of each: x86 and ARM.
_CPU_LINE = re.compile(
    r"^(vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+)\s*: *(.*)$",
    re.MULTILINE,
)
_GPU_LINE = re.compile(r"^Model: *(.*)$", re.MULTILINE)


def processor_models(root: Path | None = None) -> dict[str, list[str]]:
    """What the kernel says of the CPU, the GPUs and the TPU; empty where it says nothing.

    Args:
      root: root of the file system, if not this machine's.
    """
    root = root or hardware.ROOT
    cpu: dict[str, str] = {}
    for name, value in _CPU_LINE.findall(_read(root / "proc/cpuinfo")):
        cpu.setdefault(name, value.strip())
    gpus = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    models = {model.strip() for gpu in gpus for model in _GPU_LINE.findall(_read(gpu))}
    return {
        "cpu": [f"{name}: {value}" for name, value in sorted(cpu.items())],
        "gpu": sorted(models),
        "tpu": [generation] if (generation := hardware.tpu_generation()) else [],
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
