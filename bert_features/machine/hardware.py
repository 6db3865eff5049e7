"""Which accelerators this machine has and who holds them, asked of the kernel's own files.

Importing this imports neither TensorFlow nor JAX, and nothing here starts a device or takes longer
than reading some small files.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")  # of the file system

# PCI vendors and devices, as in JAX's `hardware_utils.py`. The vendor alone tells nothing: the
# network cards and disks of Google's virtual machines have it too.
_GOOGLE = "0x1ae0"
TPU_GENERATIONS: dict[str, str] = {
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
}
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"  # VGA and 3D controllers; a card's sound device has the same vendor

# One for each chip: up to v4 /dev/accel0, …, since v5e /dev/vfio/0, … .
_TPU_FILES = (("dev", r"accel\d+"), ("dev/vfio", r"\d+"))
_NVIDIA_FILES = (("dev", r"nvidia\d+"), ("dev", "dxg"))  # dxg: under Windows


@dataclass(frozen=True)
class Slice:
    """This host's place among those of a TPU slice, as its environment tells.

    Attributes:
      host: from 0.
      hosts: how many.
    """

    host: int = 0
    hosts: int = 1


def cores() -> int:
    """How many CPU cores this process may use: a container may have a share of those it sees."""
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    return min(count, _cores_of_container() or count)


def _cores_of_container() -> int | None:
    """Cores by the time that control groups (version 2) allow, rounded up; None for no limit."""
    quota, _, period = _read(ROOT / "sys/fs/cgroup/cpu.max").partition(" ")
    if not (quota.isdecimal() and period.isdecimal()):
        return None
    return max(-(-int(quota) // int(period)), 1)


def tpu_chips() -> int:
    """How many TPU chips this machine has, whether or not this process may open them."""
    return len(_tpu_devices())


def tpu_generation() -> str | None:
    """The generation of the chips, such as `v5e`; None without any."""
    return next(iter(_tpu_devices()), None)


def tpu_device_files() -> list[Path]:
    """The device files of the chips, in their order; none in a container that was not given them.

    A machine without chips has none either: other hardware has files of the same names.
    """
    return _files(_TPU_FILES) if tpu_chips() else []


def nvidia_gpus() -> int:
    """How many NVIDIA GPUs have a driver and are given to this machine or container."""
    return len(nvidia_device_files())


def nvidia_device_files() -> list[Path]:
    """The device files of the GPUs that have a driver, in their order."""
    return _files(_NVIDIA_FILES)


def nvidia_cards() -> int:
    """How many NVIDIA GPUs are plugged in, with a driver or without."""
    return sum(
        vendor == _NVIDIA and _read(path / "class").startswith(_DISPLAY_CLASS)
        for path, vendor in _pci_devices()
    )


def holders_of(paths: Iterable[Path | str]) -> dict[int, str]:
    """The other processes that have one of these files open: their ids, and what they run.

    Only the superuser sees what other users' processes hold.
    """
    wanted = {str(path) for path in paths}
    if not wanted:
        return {}
    processes = (int(entry.name) for entry in _entries(ROOT / "proc") if entry.name.isdigit())
    return {
        process: _read(ROOT / "proc" / str(process) / "comm") or "?"
        for process in sorted(processes)
        if process != os.getpid() and not wanted.isdisjoint(_open_files(process))
    }


def tpu_slice() -> Slice:
    """The place of this host by TPU_WORKER_ID and TPU_WORKER_HOSTNAMES; alone, if they are unset.

    Kubernetes sets them in every pod, and so does who starts one program on each host.
    """
    hosts = [host for host in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if host]
    worker = os.environ.get("TPU_WORKER_ID", "")
    if len(hosts) < 2 or not worker.isdigit():
        return Slice()
    return Slice(int(worker), len(hosts))


def _open_files(process: int) -> Iterator[str]:
    for descriptor in _entries(ROOT / "proc" / str(process) / "fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            yield str(descriptor.readlink())


def _tpu_devices() -> list[str]:
    """The generation of each chip."""
    devices = [_read(path / "device") for path, vendor in _pci_devices() if vendor == _GOOGLE]
    return [TPU_GENERATIONS[device] for device in devices if device in TPU_GENERATIONS]


def _pci_devices() -> Iterator[tuple[Path, str]]:
    """The folder and the vendor of each device on the PCI bus."""
    for path in _entries(ROOT / "sys/bus/pci/devices"):
        yield path, _read(path / "vendor")


def _files(patterns: Iterable[tuple[str, str]]) -> list[Path]:
    found = [
        path
        for folder, pattern in patterns
        for path in _entries(ROOT / folder)
        if re.fullmatch(pattern, path.name)
    ]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing, if it is not there or may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
