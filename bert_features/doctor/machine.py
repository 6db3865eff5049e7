"""Checks of the machine: CPU, memory, accelerators and the processes that hold them.

System files are read below a root folder, so that a test can make up a machine.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bert_features.doctor.finding import Finding
from bert_features.files.reporting import describe_size
from bert_features.machine import hardware, onednn, tpu_installation

_NVIDIA_SMI_SECONDS = 10
_CPU_MODEL = re.compile(r"^model name\s*:\s*(.*)$", re.MULTILINE)
_VECTOR_FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16"),
    *("asimd", "bf16"),
)
_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")


@dataclass(frozen=True)
class Accelerators:
    """The accelerators that the machine shows, whether or not a program can use them.

    Attributes:
      tpus: device files of TPU chips.
      gpus: device files of NVIDIA GPUs.
      tpu_holders: process id -> name, for processes that have a TPU's device file open.
      gpu_names: name and memory of each GPU, from nvidia-smi.
      tpu_problem: why the chips of this machine cannot be opened; empty if they can, or if there
        are none.
      cards: number of NVIDIA GPUs plugged in, with or without a driver.
    """

    tpus: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    tpu_holders: Mapping[int, str] = field(default_factory=dict)
    gpu_names: tuple[str, ...] = ()
    tpu_problem: str = ""
    cards: int = 0


def find_accelerators() -> Accelerators:
    """Finds the device files of TPUs and GPUs, and the processes that hold the TPUs."""
    tpus, gpus = hardware.tpu_device_files(), hardware.nvidia_device_files()
    return Accelerators(
        tpus=tuple(map(str, tpus)),
        gpus=tuple(map(str, gpus)),
        tpu_holders=hardware.holders_of(tpus),
        gpu_names=_nvidia_smi() if gpus else (),
        tpu_problem=(hardware.tpu_chips() and tpu_installation.device_problem()) or "",
        cards=hardware.nvidia_cards(),
    )


def check_system() -> Finding:
    """The versions of Python and of the platform."""
    found = f"{platform.python_version()} on {platform.platform()}"
    return Finding("python", "ok", found, details={"python": platform.python_version()})


def check_cpu(environment: Mapping[str, str], root: Path = Path("/")) -> Finding:
    """The CPU's cores and vector instructions, bfloat16, and whether oneDNN is on."""
    model = _CPU_MODEL.search(_read(root / "proc" / "cpuinfo") or "")
    count = hardware.cores()
    name = f"{count} cores of {model[1] if model else platform.processor() or platform.machine()}"
    flags = hardware.cpu_flags(root)
    known = [flag for flag in _VECTOR_FLAGS if flag in flags]
    off = onednn.find_off(environment)
    details = {"cores": count, "flags": known, "onednn": onednn.is_x86() and off is None}
    if off is not None:
        found = f"{name}; oneDNN, the fast CPU kernels, is off: {off.reason}"
        return Finding("cpu", "warning", found, off.remedy, details)
    if not flags:
        return Finding("cpu", "ok", f"{name}; vector instructions unknown", details=details)
    found = f"{name}; {', '.join(known) or 'no known vector instructions'}"
    found += "; oneDNN on" if onednn.is_x86() else ""
    if flags.isdisjoint(_BFLOAT16_FLAGS):
        found += "; no bfloat16 instructions, so --precision bfloat16 is slow"
        remedy = "bert-features extract --precision float32 …"
        return Finding("cpu", "note", found, remedy, details)  # the default is float32
    return Finding("cpu", "ok", found, details=details)


def check_memory(root: Path = Path("/")) -> Finding:
    """The memory of the machine, and the limit of this container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (_read(root / "sys" / "fs" / "cgroup" / "memory.max") or "").strip()
    found, details = describe_size(total), {"total_bytes": total}
    if limit.isdecimal() and int(limit) < total:
        found = f"{describe_size(int(limit))} of {found}, the limit of this container"
        details["allowed_bytes"] = int(limit)
    return Finding("memory", "ok", found, details=details)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _nvidia_smi() -> tuple[str, ...]:
    """`name, memory` of each GPU; empty if nvidia-smi is missing or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(answer.stdout.strip().splitlines())
