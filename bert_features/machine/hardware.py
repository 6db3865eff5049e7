"""The CPU cores, TPUs and GPUs of this machine, read from the kernel's own files.

Importing this imports neither TensorFlow nor JAX, and nothing here starts a device or takes longer
than reading some small files.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_features.errors import ConfigError

logger = logging.getLogger("bert_features")

ROOT = Path("/")  # of the file system

# Lines of /proc/cpuinfo that differ between kinds of CPU, on x86 or on ARM.
_CPU_LINE = re.compile(
    r"^(vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+)\s*: *(.*)$",
    re.MULTILINE,
)
# Instruction sets that decide how a library computes a matrix product.
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
# Of Arm's own CPUs the kernel gives a number: Graviton 2, 3 and 4 are N1, V1 and V2, Grace V2.
_ARM_NAMES = {
    "0x41 0xd0c": "Neoverse N1",
    "0x41 0xd40": "Neoverse V1",
    "0x41 0xd49": "Neoverse N2",
    "0x41 0xd4f": "Neoverse V2",
}
_GPU_LINE = re.compile(r"^Model: *(.*)$", re.MULTILINE)

# PCI vendors and devices, as in JAX's `hardware_utils.py`. The vendor alone does not suffice:
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

# One file for each chip: up to v4 /dev/accel0, …, since v5e /dev/vfio/0, … .
_TPU_FILES = (("dev", r"accel\d+"), ("dev/vfio", r"\d+"))
_NVIDIA_FILES = (("dev", r"nvidia\d+"), ("dev", "dxg"))  # dxg: under Windows

# Steps that run at the same time on a CPU. One alone leaves cores idle, because each of its kernels
# waits for its slowest thread: 1.15 times the tokens/s on 2 cores (benchmarks/diary.md).
# Each holds the activations of its batch, so their number is limited on machines with many cores.
MAX_STREAMS = 8

# What names the hosts of a job. With the address of a coordinator JAX asks it for numbers.
JAX_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
JAX_INDEX, JAX_COUNT = "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"
TPU_INDEX, TPU_HOSTS = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"

# What TensorFlow takes the sizes of its pools of threads from.
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
_limits: dict[str, int] = {}  # of this process


def cores() -> int:
    """Number of CPU cores this process may use. A container may see more than its share."""
    count = len(core_numbers())
    return min(count, _container_cores() or count, _limits.get("cores", count))


def core_numbers() -> set[int]:
    """The numbers of the CPU cores that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def limit_cores(count: int) -> None:
    """Makes this process use threads for at most this many cores.

    It has an effect on TensorFlow only before it is imported. It names no cores, so it works beside
    other programs that do the same, and in containers.
    """
    if count >= cores():
        return
    _limits["cores"] = count
    for variable in _THREADS:
        os.environ[variable] = str(count)


def keep_kernels_on_one_thread() -> None:
    """Makes each kernel of TensorFlow compute on the thread that calls it.

    For a process that computes a batch on each core at the same time: kernels that share the cores
    wait for each other. It does nothing where there are more cores than such batches, or where the
    user's environment decides, and has an effect only before TensorFlow is imported.
    """
    if cores() <= MAX_STREAMS and (_limits or _THREADS[0] not in os.environ):
        os.environ[_THREADS[0]] = "1"


def cpu_facts() -> dict[str, str]:
    """What the kernel says of the kind of the CPU, by its names; empty if it says nothing."""
    facts: dict[str, str] = {}
    for name, value in _CPU_LINE.findall(read_text(ROOT / "proc/cpuinfo")):
        facts.setdefault(name, value.strip())  # the first of the cores
    return facts


def cpu_name() -> str:
    """The model of the CPU; empty if it is unknown."""
    facts = cpu_facts()
    numbers = f"{facts.get('CPU implementer')} {facts.get('CPU part')}"
    return facts.get("model name") or _ARM_NAMES.get(numbers, "")


def cpu_flags() -> frozenset[str]:
    """The features that the kernel lists for the CPU, as `avx2`; empty if it lists none."""
    facts = cpu_facts()
    return frozenset(f"{facts.get('flags', '')} {facts.get('Features', '')}".split())


def processor_models() -> dict[str, list[str]]:
    """The models of the CPU, the GPUs and the TPU, as far as numbers may depend on them.

    Empty where the kernel says nothing.
    """
    gpus = ROOT.glob("proc/driver/nvidia/gpus/*/information")
    models = {model.strip() for gpu in gpus for model in _GPU_LINE.findall(read_text(gpu))}
    return {
        "cpu": [f"{name}: {value}" for name, value in sorted(cpu_facts().items())],
        "gpu": sorted(models),
        "tpu": [generation] if (generation := tpu_generation()) else [],
    }


def describe_processor(kind: str) -> str:
    """One line on the processor of a kind of device; empty where the kernel says nothing."""
    if kind != "cpu":
        return ", ".join(processor_models()[kind])
    facts, flags = cpu_facts(), cpu_flags()
    # A virtual machine may hide the name: the numbers then identify its processor.
    numbers = [f"{n} {facts[n]}" for n in ("cpu family", "model", "CPU part") if n in facts]
    sets = [name for name in _INSTRUCTION_SETS if name in flags]
    return ", ".join(filter(None, [facts.get("model name", ""), *numbers, *sets]))


def _container_cores() -> int | None:
    """Cores that control groups (version 2) allow, rounded up; None without a limit."""
    quota, _, period = read_text(ROOT / "sys/fs/cgroup/cpu.max").partition(" ")
    if not (quota.isdecimal() and period.isdecimal()):
        return None
    return max(-(-int(quota) // int(period)), 1)


def tpu_chips() -> int:
    """Number of TPU chips of this machine, whether or not this process may open them."""
    return len(_tpu_devices())


def tpu_generation() -> str | None:
    """The generation of the chips, such as `v5e`; None without chips."""
    return next(iter(_tpu_devices()), None)


def tpu_device_files() -> list[Path]:
    """The device files of the chips, in order; none in a container that was started without them.

    Empty on a machine without chips, where other hardware may have files of the same names.
    """
    return _files(_TPU_FILES) if tpu_chips() else []


def nvidia_gpus() -> int:
    """Number of NVIDIA GPUs with a driver that this machine or container may use."""
    return len(nvidia_device_files())


def nvidia_device_files() -> list[Path]:
    """The device files of the GPUs that have a driver, in order."""
    return _files(_NVIDIA_FILES)


def nvidia_cards() -> int:
    """Number of NVIDIA GPUs plugged in, with a driver or without."""
    return sum(
        vendor == _NVIDIA and read_text(path / "class").startswith(_DISPLAY_CLASS)
        for path, vendor in _pci_devices()
    )


def holders_of(paths: Iterable[Path | str]) -> dict[int, str]:
    """The other processes that have one of these files open: process id -> program name.

    Only the superuser sees the open files of other users' processes.
    """
    devices = {str(path) for path in paths}
    if not devices:
        return {}
    processes = (int(entry.name) for entry in _entries(ROOT / "proc") if entry.name.isdigit())
    return {
        process: read_text(ROOT / "proc" / str(process) / "comm") or "?"
        for process in sorted(processes)
        if process != os.getpid() and not devices.isdisjoint(_open_files(process))
    }


def place_among_hosts() -> tuple[int, int] | None:
    """The number of this host in a job, from 0, and the number of hosts; None if nothing says so.

    By JAX_PROCESS_ID and JAX_NUM_PROCESSES, else by TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, which
    Kubernetes sets in every pod of a slice. A host that took the wrong number would leave a share
    out, or do another's again; raises ConfigError for one that is missing, none or out of range.
    """
    hosts = [host for host in os.environ.get(TPU_HOSTS, "").split(",") if host]
    for name, names, count in (
        (JAX_INDEX, JAX_COUNT, number_of(JAX_COUNT)),
        (TPU_INDEX, TPU_HOSTS, len(hosts) or None),
    ):
        index = number_of(name)
        if index is None and count is None:
            continue
        if (index, count) in ((None, 1), (0, None)):  # a host without others
            continue
        if index is None or count is None:
            if name == JAX_INDEX and JAX_COORDINATOR in os.environ:
                continue
            present, other = (names, name) if index is None else (name, names)
            raise ConfigError(f"{present} is set and {other} is not; set both, or unset it")
        if index >= count:
            text = f"{name} is {index}, of the {count} hosts of {names}"
            raise ConfigError(f"{text}; allowed: 0 to {count - 1}")
        return index, count
    return None


def warn_of_missing_tpu(kind: str) -> None:
    """Warns if a host of a TPU slice computes on another kind of device."""
    if kind != "tpu" and os.environ.get(TPU_HOSTS, "").count(","):
        logger.warning(
            "%s names the hosts of a TPU slice, but this one has no TPU that can be used: it "
            "computes on the %s",
            TPU_HOSTS,
            kind.upper(),
        )


def number_of(name: str) -> int | None:
    """A variable of the environment as a number; None if it is unset; raises ConfigError."""
    value = os.environ.get(name)
    if value is not None and not (value.isascii() and value.isdigit()):
        raise ConfigError(f"{name} is {value!r}; allowed: a number from 0, or unset it")
    return None if value is None else int(value)


def _open_files(process: int) -> Iterator[str]:
    for descriptor in _entries(ROOT / "proc" / str(process) / "fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            yield str(descriptor.readlink())


def _tpu_devices() -> list[str]:
    """The generation of each chip."""
    devices = [read_text(path / "device") for path, vendor in _pci_devices() if vendor == _GOOGLE]
    return [TPU_GENERATIONS[device] for device in devices if device in TPU_GENERATIONS]


def _pci_devices() -> Iterator[tuple[Path, str]]:
    """The folder and the vendor of each device on the PCI bus."""
    for path in _entries(ROOT / "sys/bus/pci/devices"):
        yield path, read_text(path / "vendor")


def _files(patterns: Iterable[tuple[str, str]]) -> list[Path]:
    files = [
        path
        for folder, pattern in patterns
        for path in _entries(ROOT / folder)
        if re.fullmatch(pattern, path.name)
    ]
    return sorted(files, key=lambda path: (len(path.name), path.name))


def _entries(folder: Path) -> list[Path]:
    """The contents of a folder; empty if it is missing or may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def read_text(path: Path) -> str:
    """The text of a small file, without white space around it; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
