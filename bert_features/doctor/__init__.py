"""What is wrong with this installation and this machine, and the commands that mend it.

Nothing is imported here that may be what is broken: packages are judged by their metadata, and
TensorFlow, JAX and Keras are imported in child processes, whose death is a finding.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from bert_features.doctor.children import Child, Outcome
from bert_features.doctor.environment import check_environment
from bert_features.doctor.finding import Finding as Finding
from bert_features.doctor.finding import Status as Status
from bert_features.doctor.imports import (
    METADATA_VARIABLE,
    Runtimes,
    check_gpu,
    check_gs,
    check_imports,
    check_listing,
    check_tpu,
    has_tpu,
)
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
from bert_features.doctor.storage import check_cache, check_embedded_model, check_output

__all__ = ["IMPORT_SECONDS", "Finding", "Status", "examine", "is_broken"]

IMPORT_SECONDS = 120.0


def examine(
    output: Path,
    *,
    seconds: float = IMPORT_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Runs every check.

    Args:
      output: the folder that features are to be written to.
      seconds: after which an import counts as hanging.
      environment: the variables to go by; those of this process if None.
    """
    environment = os.environ if environment is None else environment
    packages = installed()
    machine = find_accelerators()
    runtimes = _ask_runtimes(packages, machine, environment, seconds)
    of_packages = check_packages(packages)
    mending = {finding.check: finding.remedy for finding in of_packages if finding.remedy}
    return [
        check_system(),
        *of_packages,
        *check_imports(runtimes, mending),
        *check_listing(machine, runtimes, environment),
        check_cpu(environment),
        check_memory(),
        check_tpu(machine, runtimes, environment),
        check_gpu(machine, runtimes, environment),
        *check_gs(runtimes.tensorflow),
        check_embedded_model(),
        *check_cache(),
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
        # Else libtpu asks for one that is not here for minutes, which is a finding of its own.
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
    """Runs the children, all at once or, as a TPU serves one process at a time, in turn."""
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
