"""Runs every check of the installation and the machine.

This process imports nothing that may be broken: packages are judged by their metadata, and
TensorFlow, JAX and Keras are imported in child processes. If a child dies, that is a finding.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from bert_features.doctor.children import Child, Outcome
from bert_features.doctor.devices import check_gpu, check_listing, check_tpu, has_tpu
from bert_features.doctor.environment import check_environment
from bert_features.doctor.finding import Finding
from bert_features.doctor.imports import check_imports
from bert_features.doctor.machine import (
    Accelerators,
    check_cpu,
    check_memory,
    check_system,
    find_accelerators,
)
from bert_features.doctor.packages import (
    Packages,
    check_packages,
    installed,
    minor_version,
    name_of,
    tensorflow_build,
)
from bert_features.doctor.runtimes import METADATA_VARIABLE, Runtimes
from bert_features.doctor.storage import (
    check_cache,
    check_embedded_model,
    check_output,
)

IMPORT_SECONDS = 120.0


def examine(
    output: Path,
    *,
    seconds: float = IMPORT_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Runs every check.

    Args:
      output: the folder that features will be written to.
      seconds: time limit of an import; a slower one counts as hanging.
      environment: the environment variables to check; None takes those of this process.
    """
    environment = os.environ if environment is None else environment
    packages = installed()
    machine = find_accelerators()
    runtimes = _ask_runtimes(packages, machine, environment, seconds)
    package_findings = check_packages(packages)
    remedies = {finding.check: finding.remedy for finding in package_findings if finding.remedy}
    return [
        check_system(),
        *package_findings,
        *check_imports(runtimes, remedies),
        *check_listing(machine, runtimes, environment),
        check_cpu(environment),
        check_memory(),
        check_tpu(machine, runtimes, environment),
        check_gpu(machine, runtimes, environment),
        check_embedded_model(),
        check_cache(),
        check_output(output),
        *check_environment(environment),
    ]


def is_broken(findings: list[Finding]) -> bool:
    """Whether something stops every run."""
    return any(finding.status == "broken" for finding in findings)


def _ask_runtimes(
    packages: Packages, machine: Accelerators, environment: Mapping[str, str], seconds: float
) -> Runtimes:
    build = tensorflow_build(packages)
    with_tpu = has_tpu(machine, environment)
    if not with_tpu:
        # Otherwise libtpu searches for a TPU for minutes, which `check_tpu` reports.
        environment = {METADATA_VARIABLE: "1", **environment}
    modules = {}
    if build is not None:
        modules["tensorflow"] = ("tensorflow_child", ["--with-tpu"] if with_tpu else [])
    if "jax" in packages:
        modules["jax"] = ("jax_child", [])
    outcomes = _run(modules, environment, seconds, at_once=not with_tpu)
    return Runtimes(
        outcomes.get("tensorflow"),
        outcomes.get("jax"),
        name_of(build) if build is not None else "tensorflow",
        minor_version(build) if build is not None else "2.20",
    )


def _run(
    modules: Mapping[str, tuple[str, list[str]]],
    environment: Mapping[str, str],
    seconds: float,
    *,
    at_once: bool,
) -> dict[str, Outcome]:
    """Runs the children all at once or, because a TPU serves one process at a time, in turn."""
    if not at_once:
        return {
            name: Child(module, arguments, environment).wait(seconds)
            for name, (module, arguments) in modules.items()
        }
    children = {name: Child(*arguments, environment) for name, arguments in modules.items()}
    try:
        return {name: child.wait(seconds) for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
