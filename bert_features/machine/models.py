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
# Instruction sets that decide how a library computes a matrix product.
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
_GPU_LINE = re.compile(r"^Model: *(.*)$", re.MULTILINE)


def processor_models(root: Path | None = None) -> dict[str, list[str]]:
    """What the kernel says of the CPU, the GPUs and the TPU; empty where it says nothing.

    Args:
      root: root of the file system, if not this machine's.
    """
    root = root or hardware.ROOT
    cpu: dict[str, str] = {}
    for name, value in _CPU_LINE.findall(hardware.read_text(root / "proc/cpuinfo")):
        cpu.setdefault(name, value.strip())
    gpus = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    models = {model.strip() for gpu in gpus for model in _GPU_LINE.findall(hardware.read_text(gpu))}
    return {
        "cpu": [f"{name}: {value}" for name, value in sorted(cpu.items())],
        "gpu": sorted(models),
        "tpu": [generation] if (generation := hardware.tpu_generation()) else [],
    }


def describe_processor(kind: str, root: Path | None = None) -> str:
    """One line on the processor that computes; empty where the kernel says nothing.

    Args:
      kind: `cpu`, `gpu` or `tpu`.
      root: see `processor_models`.
    """
    models = processor_models(root)
    if kind != "cpu":
        return ", ".join(models[kind])
    facts = dict(line.split(": ", maxsplit=1) for line in models["cpu"])
    known = {*facts.get("flags", "").split(), *facts.get("Features", "").split()}
    # A virtual machine may hide the name: its processor is then told by the numbers.
    parts = [facts.get("model name", "")]
    parts += [
        f"{name} {facts[name]}" for name in ("cpu family", "model", "CPU part") if name in facts
    ]
    parts += [name for name in _INSTRUCTION_SETS if name in known]
    return ", ".join(filter(None, parts))
