"""Findings from what the child processes told: imports, gs://, and the devices each runtime has."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_features.doctor.children import Outcome
from bert_features.doctor.finding import Finding, Status, describe_bytes
from bert_features.doctor.machine import Accelerators
from bert_features.machine.tpu_installation import remote_tpu

# Google's TPU machines have a server that tells of the TPU. Elsewhere libtpu asks for it all the
# same, each question up to 30 times: where the network answered 403, `import tensorflow` (TPU build
# 2.20.0, libtpu 0.0.30) had not ended after 6 minutes. With this variable set it took 8 s.
METADATA_VARIABLE = "TPU_SKIP_MDS_QUERY"
# The checks of packages whose findings explain why an import fails, the likeliest first.
_CAUSES = {
    "tensorflow": ("tensorflow", "libtpu", "needs of tensorflow", "needs of tensorflow-tpu"),
    "tensorflow_text": ("tensorflow-text", "tensorflow"),
    "keras": ("keras", "needs of keras"),
    "jax": ("needs of jax", "needs of jaxlib"),
}
_NOT_RUN = Outcome()


@dataclasses.dataclass(frozen=True)
class Runtimes:
    """What the two runtimes said of themselves.

    Attributes:
      tensorflow: its child's outcome; None if it is not installed.
      jax: likewise.
      tensorflow_build: name of the distribution that brings TensorFlow.
      tensorflow_minor: its version, as 2.20.
    """

    tensorflow: Outcome | None
    jax: Outcome | None
    tensorflow_build: str = "tensorflow"
    tensorflow_minor: str = "2.20"

    def devices(self, kind: str) -> dict[str, list[Mapping[str, Any]]]:
        """Runtime -> its devices of a kind, `tpu` or `gpu`, of those that have any."""
        by_tensorflow = (self.tensorflow or _NOT_RUN).results.get(kind, {}).get("devices", [])
        by_jax = (self.jax or _NOT_RUN).results.get("devices", {}).get("devices", [])
        every = {
            "TensorFlow": by_tensorflow,
            "JAX": [device for device in by_jax if device["platform"] == kind],
        }
        return {runtime: devices for runtime, devices in every.items() if devices}

    def complaint(self, kind: str) -> str:
        """What a runtime said when it was asked for such devices; empty if nothing."""
        said = {
            "TensorFlow": (self.tensorflow or _NOT_RUN).why_not(kind),
            "JAX": (self.jax or _NOT_RUN).why_not("devices"),
        }
        return "; ".join(f"{runtime}: {why}" for runtime, why in said.items() if why)


def check_imports(runtimes: Runtimes, mending: Mapping[str, str]) -> list[Finding]:
    """Whether TensorFlow, tensorflow-text, Keras and JAX can be imported.

    Args:
      runtimes: what the child processes told.
      mending: check -> command, of what is wrong with the installed packages: an import that fails
        beside such a finding most likely fails for it.
    """
    minor, force = runtimes.tensorflow_minor, "pip install --force-reinstall --no-deps"
    last_resort = {
        "tensorflow": f"{force} '{runtimes.tensorflow_build}=={minor}.*'",
        "tensorflow_text": f"{force} 'tensorflow-text=={minor}.*'",
        "keras": f"{force} keras",
        "jax": "pip install -U jax",
    }
    remedies = {
        package: next((mending[cause] for cause in causes if cause in mending), None)
        or last_resort[package]
        for package, causes in _CAUSES.items()
    }
    asked: tuple[tuple[str, str, Outcome | None, Status], ...] = (
        ("import tensorflow", "tensorflow", runtimes.tensorflow, "broken"),
        ("import tensorflow_text", "tensorflow_text", runtimes.tensorflow, "broken"),
        ("import keras", "keras", runtimes.tensorflow, "broken"),
        ("import jax", "jax", runtimes.jax, "warning"),
        ("import keras on JAX", "keras", runtimes.jax, "warning"),
    )
    findings = [
        _check_import(name, package, outcome, status, remedies[package])
        for name, package, outcome, status in asked
        if outcome is not None
    ]
    return [finding for finding in findings if finding is not None]


def _check_import(
    name: str, package: str, outcome: Outcome, status: Status, remedy: str
) -> Finding | None:
    if package in outcome.results:
        details = {"seconds_of_process": round(outcome.seconds, 1)}
        return Finding(name, "ok", str(outcome.results[package]["version"]), details=details)
    why = outcome.why_not(package)
    if why is None and outcome.ended_in == "start" and package in ("tensorflow", "jax"):
        why = outcome.ending
    if why is None:  # not come to, because of another that is reported
        return None
    return Finding(name, status, why, remedy)


def check_listing(
    machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]
) -> list[Finding]:
    """Whether each runtime can list its devices: one that cannot does not run on a CPU either.

    What it says of accelerators that are here, `check_tpu` and `check_gpu` report.
    """
    of_jax = "unset JAX_PLATFORMS" if "JAX_PLATFORMS" in environment else "export JAX_PLATFORMS=cpu"
    asked: tuple[tuple[str, Outcome | None, str, Status, str], ...] = (
        ("TensorFlow", runtimes.tensorflow, "gpu", "broken", "export CUDA_VISIBLE_DEVICES=-1"),
        ("JAX", runtimes.jax, "devices", "warning", of_jax),
    )
    findings = []
    for runtime, outcome, stage, status, remedy in asked:
        why = outcome.why_not(stage) if outcome is not None else None
        died = outcome is not None and outcome.ended_in == stage
        if why and (died or not (machine.tpus or machine.gpus)):
            findings.append(Finding(f"devices of {runtime}", status, why, remedy))
    return findings


def check_gs(outcome: Outcome | None) -> list[Finding]:
    """Whether TensorFlow knows gs:// paths; nothing is read from there."""
    told = (outcome or _NOT_RUN).results.get("tensorflow")
    if told is None:
        return []
    if "gs" in told["schemes"]:
        return [Finding("gs://", "ok", "TensorFlow has a file system for it")]
    found = "TensorFlow has no file system for it: checkpoints in a bucket cannot be read"
    remedy = "pip install 'tensorflow-io-gcs-filesystem>=0.23.1'"
    return [Finding("gs://", "warning", found, remedy)]


def has_tpu(machine: Accelerators, environment: Mapping[str, str]) -> bool:
    """Whether there is a TPU to be driven: of this machine, or by name."""
    return bool(machine.tpus or remote_tpu(environment))


def check_tpu(machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]) -> Finding:
    """TPUs: those the machine shows, who holds them, and which runtime drives them."""
    driven = runtimes.devices("tpu")
    if driven:
        return Finding("tpu", "ok", _describe_devices(driven), details=_details(driven))
    if machine.tpu_problem and not machine.tpu_holders:
        return Finding("tpu", "warning", machine.tpu_problem)
    if not has_tpu(machine, environment):
        if runtimes.tensorflow_build == "tensorflow-tpu" and METADATA_VARIABLE not in environment:
            found = "none here, and importing tensorflow-tpu looks for one for minutes"
            return Finding("tpu", "warning", found, f"export {METADATA_VARIABLE}=1")
        return Finding("tpu", "ok", "none here")
    seen = f"the TPU {remote_tpu(environment)}"
    if machine.tpus:
        seen = f"{len(machine.tpus)} chip(s) at {machine.tpus[0]}"
    if machine.tpu_holders:
        held = ", ".join(f"{pid} ({name})" for pid, name in machine.tpu_holders.items())
        found = f"{seen}, held by process {held}: a TPU serves one process at a time"
        remedy = f"kill {' '.join(map(str, machine.tpu_holders))}"
        details = {"holders": {str(pid): name for pid, name in machine.tpu_holders.items()}}
        return Finding("tpu", "warning", found, remedy, details)
    remedy = _unhide("tpu", environment) or _tpu_install(runtimes)
    return Finding("tpu", "warning", _undriven(seen, "tpu", runtimes), remedy)


def check_gpu(machine: Accelerators, runtimes: Runtimes, environment: Mapping[str, str]) -> Finding:
    """GPUs: those the machine shows, and which runtime drives them."""
    driven = runtimes.devices("gpu")
    if driven:
        return Finding("gpu", "ok", _describe_devices(driven), details=_details(driven))
    if machine.cards and not machine.gpus:
        found = f"{machine.cards} NVIDIA GPU(s) plugged in, but no driver here for any"
        return Finding("gpu", "warning", found, "docker run --gpus all …")
    if not machine.gpus:
        return Finding("gpu", "ok", "none here")
    named = f" ({'; '.join(machine.gpu_names)})" if machine.gpu_names else ""
    seen = f"{len(machine.gpus)} at {machine.gpus[0]}{named}"
    install = f"pip install 'tensorflow[and-cuda]=={runtimes.tensorflow_minor}.*'"
    remedy = _unhide("gpu", environment) or install
    return Finding("gpu", "warning", _undriven(seen, "gpu", runtimes), remedy)


def _undriven(seen: str, kind: str, runtimes: Runtimes) -> str:
    said = runtimes.complaint(kind)
    return f"{seen}, which neither runtime can drive" + (f" ({said})" if said else "")


def _tpu_install(runtimes: Runtimes) -> str:
    if runtimes.tensorflow_build == "tensorflow-tpu":
        return "bash scripts/setup_tpu.sh"
    return "pip install -U 'jax[tpu]'"


def _unhide(kind: str, environment: Mapping[str, str]) -> str | None:
    """The command that shows the devices again which a variable hides; None if none does."""
    if kind == "gpu" and environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES"
    platforms = environment.get("JAX_PLATFORMS")
    names = {"tpu": {"tpu"}, "gpu": {"gpu", "cuda", "rocm"}}[kind]
    if platforms and names.isdisjoint(platforms.split(",")):
        return "unset JAX_PLATFORMS"
    return None


def _describe_devices(driven: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    parts = []
    for runtime, devices in driven.items():
        sizes = [device["memory_bytes"] for device in devices if device["memory_bytes"]]
        memory = f" with {describe_bytes(min(sizes))} each" if sizes else ""
        parts.append(f"{len(devices)} {devices[0]['name']}{memory} by {runtime}")
    return "; ".join(parts)


def _details(driven: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    return {runtime: [dict(device) for device in devices] for runtime, devices in driven.items()}
