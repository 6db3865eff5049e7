"""oneDNN, TensorFlow's fast kernels for CPUs: on x86 turned on before TensorFlow is imported.

TensorFlow turns them on by itself only where the CPU has instructions for neural networks
(`DefaultOneDnnPolicy` in its util/port.cc). They pay on the others too: with AVX2 alone 1.3 times
the tokens/s, with AVX-512 1.4 times (6,220 instead of 4,378 on a Zen 4). On ARM TensorFlow decides:
its wheels for Linux have oneDNN with Arm's Compute Library (ACL), on by default on Neoverse V1
alone. Those for macOS have none.
"""

import os
import platform
import sys
from collections.abc import Mapping
from typing import NamedTuple

from bert_features.machine import hardware

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_X86 = {"x86_64", "amd64", "i386", "i686"}
# Flags of /proc/cpuinfo with which TensorFlow turns oneDNN on by itself.
_ON_BY_DEFAULT = {
    *("avx512_vnni", "avx512_bf16", "avx_vnni"),
    *("amx_tile", "amx_int8", "amx_bf16"),
}
_ON_BY_DEFAULT_ARM = "Neoverse V1"
_OFF = ("0", "false")  # in any case
# oneDNN's own limit of the instructions that it uses, and its values for none.
LIMIT = "ONEDNN_MAX_CPU_ISA"
_NO_LIMIT = ("", "ALL", "DEFAULT")
# The classes of CPUs, best first: the flag that makes one, and parts of the limits that allow it.
_CLASSES = {
    "AMX": ("amx_bf16", ("AMX",)),
    "AVX512_BF16": ("avx512_bf16", ("AMX", "BF16", "FP16", "AVX10")),
    "AVX512_VNNI": ("avx512_vnni", ("AMX", "AVX512_CORE_", "AVX10")),
    "AVX512": ("avx512f", ("AVX512", "AVX10")),
    "AVX2": ("avx2", ("AVX512", "AVX10", "AVX2")),
}
# Where whole jobs were faster with weights that oneDNN arranges once (docs/performance.md). Where
# int8 is missing, the CPU lacks VNNI: products are slow there, and their sums may overflow.
_FIXES_WEIGHTS = {
    "AMX": {"bfloat16", "int8"},
    "AVX512_BF16": {"float32", "bfloat16", "int8"},
    "AVX512_VNNI": {"int8"},
}

# Whether TensorFlow had made its choice before this package could.
_too_late = False


class Off(NamedTuple):
    """Why oneDNN is off, and what turns it on."""

    reason: str
    remedy: str


def is_x86() -> bool:
    """Whether this CPU is an x86, for which TensorFlow's wheels have oneDNN."""
    return platform.machine().lower() in _X86


def turn_on() -> None:
    """Turns oneDNN on where the CPU is an x86, unless the user's environment decides.

    It has no effect in a process that has imported TensorFlow already; see `find_off`.
    """
    global _too_late
    if VARIABLE in os.environ or not is_x86():
        return
    if "tensorflow" in sys.modules:
        _too_late = True
    else:
        os.environ[VARIABLE] = "1"


def find_off(environment: Mapping[str, str] = os.environ) -> Off | None:
    """Why oneDNN is off on this x86 CPU; None if it is on, or the CPU is no x86."""
    if not is_x86():
        return None
    if environment.get(VARIABLE, "1").lower() in _OFF:
        return Off(f"{VARIABLE}={environment[VARIABLE]}", f"unset {VARIABLE}")
    if _too_late and hardware.cpu_flags().isdisjoint(_ON_BY_DEFAULT):
        return Off(
            "TensorFlow was imported before bert_features",
            f"import bert_features first, or set {VARIABLE}=1",
        )
    return None


def find_class(environment: Mapping[str, str] = os.environ) -> str:
    """The best instructions that oneDNN has and may use on this CPU, as `AVX512_BF16`.

    Empty if there are none, or if the CPU is no x86.
    """
    if not is_x86():
        return ""
    limit, flags = environment.get(LIMIT, "").upper(), hardware.cpu_flags()
    for name, (flag, limits) in _CLASSES.items():
        if flag in flags and (limit in _NO_LIMIT or any(part in limit for part in limits)):
            return name
    return ""


def is_narrow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether oneDNN computes on this x86 CPU without AVX-512: it has none, or may not use it."""
    return is_x86() and not find_class(environment).startswith(("AVX512", "AMX"))


def fixes_weights(dtype: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether products of a dtype are faster on this CPU by weights that oneDNN arranges once."""
    known = dtype in _FIXES_WEIGHTS.get(find_class(environment), ())
    return known and find_off(environment) is None


def describe_arm(environment: Mapping[str, str] = os.environ) -> str:
    """Whether oneDNN is on, on an ARM CPU under Linux; empty elsewhere."""
    if is_x86() or sys.platform != "linux":
        return ""
    default = "1" if hardware.cpu_name() == _ON_BY_DEFAULT_ARM else "0"
    if environment.get(VARIABLE, default).lower() not in _OFF:
        return "oneDNN with Arm's Compute Library on"
    return f"oneDNN with Arm's Compute Library off; {VARIABLE}=1 turns it on, which may be faster"


def warning() -> str | None:
    """What a run on the CPU warns of: oneDNN is off without the user's wish; else None."""
    off = find_off()
    if off is None or VARIABLE in os.environ:
        return None
    return f"oneDNN, TensorFlow's fast CPU kernels, is off: {off.reason}; {off.remedy}"
