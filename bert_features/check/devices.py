"""Findings about the devices that each runtime lists: TPUs and GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_features.check.finding import Finding, Status
from bert_features.check.machine import Accelerators
from bert_features.check.runtimes import METADATA_VARIABLE, Outcome, Runtimes
from bert_features.files.reporting import describe_size
from bert_features.machine.tpu_errors import explain
from bert_features.machine.tpu_installation import REMOTE_TPU_VARIABLES, remote_tpu


def check_listing(
    machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]
) -> list[Finding]:
    """Whether each runtime can list its devices: if it cannot, it does not run on a CPU either.

    Problems with the accelerators of this machine are left to `check_tpu` and `check_gpu`.
    """
    set_platforms = "unset JAX_PLATFORMS" if "JAX_PLATFORMS" in environment else ""
    asked: tuple[tuple[str, Outcome, str, Status, str], ...] = (
        ("TensorFlow", runtimes.tensorflow, "gpu", "broken", "export CUDA_VISIBLE_DEVICES=-1"),
        ("JAX", runtimes.jax, "devices", "warning", set_platforms or "export JAX_PLATFORMS=cpu"),
    )
    return [
        Finding(f"devices of {runtime}", status, *_explained(problem, remedy))
        for runtime, outcome, stage, status, remedy in asked
        if (problem := outcome.problem(stage))
        and (outcome.ended_in == stage or not (machine.tpus or machine.gpus))
    ]


def has_tpu(machine: Accelerators, environment: Mapping[str, str]) -> bool:
    """Whether a TPU can be used: one of this machine, or one by its name on the network."""
    return bool(machine.tpus or remote_tpu(environment))


def check_tpu(machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]) -> Finding:
    """The TPUs of the machine, the processes that hold them, and the runtimes that can use them."""
    usable = runtimes.devices("tpu")
    if usable:
        return Finding("tpu", "ok", _describe_devices(usable), details=usable)
    if machine.tpu_problem and not machine.tpu_holders:
        return Finding("tpu", "warning", machine.tpu_problem)
    if not has_tpu(machine, environment):
        if runtimes.tensorflow_build == "tensorflow-tpu" and METADATA_VARIABLE not in environment:
            found = "none found, and importing tensorflow-tpu searches for one for minutes"
            return Finding("tpu", "warning", found, f"export {METADATA_VARIABLE}=1")
        return Finding("tpu", "ok", "none found")
    seen = f"the TPU {remote_tpu(environment)}"
    if machine.tpus:
        seen = f"{len(machine.tpus)} chip(s) at {machine.tpus[0]}"
    if machine.tpu_holders:
        held = ", ".join(f"{pid} ({name})" for pid, name in machine.tpu_holders.items())
        found = f"{seen}, held by process {held}: a TPU serves one process at a time"
        remedy = f"kill {' '.join(map(str, machine.tpu_holders))}"
        return Finding("tpu", "warning", found, remedy, {"holders": machine.tpu_holders})
    # Without chips here, a variable names a TPU elsewhere, or is left over.
    remedy = f"unset {' '.join(REMOTE_TPU_VARIABLES)}"
    if machine.tpus:
        in_tensorflow = runtimes.tensorflow_build == "tensorflow-tpu"
        remedy = "bash scripts/setup_tpu.sh" if in_tensorflow else "pip install -U 'jax[tpu]'"
    found, remedy = _explained(_unusable(seen, "tpu", runtimes), remedy)
    return Finding("tpu", "warning", found, _unhide("tpu", environment) or remedy)


def check_gpu(machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]) -> Finding:
    """The GPUs of the machine and the runtimes that can use them."""
    usable = runtimes.devices("gpu")
    if usable:
        return Finding("gpu", "ok", _describe_devices(usable), details=usable)
    if machine.cards and not machine.gpus:
        found = f"{machine.cards} NVIDIA GPU(s) found, but no driver is available here"
        return Finding("gpu", "warning", found, "docker run --gpus all …")
    if not machine.gpus:
        return Finding("gpu", "ok", "none found")
    named = f" ({'; '.join(machine.gpu_models)})" if machine.gpu_models else ""
    seen = f"{len(machine.gpus)} at {machine.gpus[0]}{named}"
    install = f"pip install 'tensorflow[and-cuda]=={runtimes.tensorflow_minor}.*'"
    remedy = _unhide("gpu", environment) or install
    return Finding("gpu", "warning", _unusable(seen, "gpu", runtimes), remedy)


def _unusable(seen: str, kind: str, runtimes: Runtimes) -> str:
    problems = runtimes.problems(kind)
    return f"{seen}, which neither runtime can use" + (f" ({problems})" if problems else "")


def _explained(problem: str, remedy: str) -> tuple[str, str]:
    """A problem with its cause, and the cure; as they were, if the cause is unknown."""
    known = explain(problem)
    return (f"{problem}: {known.cause}", known.cure) if known else (problem, remedy)


def _unhide(kind: str, environment: Mapping[str, str]) -> str | None:
    """The command that unsets the variable that hides devices; None if no variable does."""
    if kind == "gpu" and environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES"
    platforms = environment.get("JAX_PLATFORMS")
    names = {"tpu": {"tpu"}, "gpu": {"gpu", "cuda", "rocm"}}[kind]
    if platforms and names.isdisjoint(platforms.split(",")):
        return "unset JAX_PLATFORMS"
    return None


def _describe_devices(usable: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    parts = []
    for runtime, devices in usable.items():
        sizes = [device["memory_bytes"] for device in devices if device["memory_bytes"]]
        memory = f" with {describe_size(min(sizes))} each" if sizes else ""
        parts.append(f"{len(devices)} {devices[0]['name']}{memory} by {runtime}")
    return "; ".join(parts)
