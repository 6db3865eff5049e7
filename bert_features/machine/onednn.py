"""oneDNN, TensorFlow's fast kernels for x86 CPUs: turned on before TensorFlow is imported.

TensorFlow turns them on by itself only where the CPU has instructions for neural networks
(`DefaultOneDnnPolicy` in its util/port.cc). They pay on the others too: with AVX2 alone 1.3 times
the tokens/s, with AVX-512 1.4 times (6,220 instead of 4,378 on a Zen 4). On ARM
TensorFlow decides.
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
_OFF = ("0", "false")  # in any case
# oneDNN's own limit of the instructions that it uses, and its values that allow AVX-512.
_LIMIT = "ONEDNN_MAX_CPU_ISA"
_NO_LIMIT = ("", "ALL", "DEFAULT")
_WIDE_LIMITS = ("AVX512", "AVX10")

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


def is_narrow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether oneDNN computes on this x86 CPU without AVX-512: it has none, or may not use it."""
    limit = environment.get(_LIMIT, "").upper()
    may_use = limit in _NO_LIMIT or limit.startswith(_WIDE_LIMITS)
    return is_x86() and not (may_use and "avx512f" in hardware.cpu_flags())


def warning() -> str | None:
    """What a run on the CPU warns of: oneDNN is off without the user's wish; else None."""
    off = find_off()
    if off is None or VARIABLE in os.environ:
        return None
    return f"oneDNN, TensorFlow's fast CPU kernels, is off: {off.reason}; {off.remedy}"
