"""Runs every check of the installation and the machine.

This process imports nothing that may be broken: packages are judged by their metadata, and
TensorFlow, JAX and Keras are imported in child processes. If a child dies, that is a finding.
"""

import dataclasses
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bert_features.check.devices import check_gpu, check_listing, check_tpu, has_tpu
from bert_features.check.finding import Finding
from bert_features.check.machine import (
    Accelerators,
    check_cache,
    check_cpu,
    check_embedded_model,
    check_environment,
    check_memory,
    check_output,
    check_system,
    find_accelerators,
)
from bert_features.check.packages import (
    Packages,
    check_packages,
    installed,
    minor_version,
    tensorflow_build,
)
from bert_features.check.runtimes import (
    METADATA_VARIABLE,
    Outcome,
    Runtimes,
    ask,
    check_imports,
    check_jax_numbers,
)

IMPORT_SECONDS = 120.0


def examine(output: Path, *, seconds: float = IMPORT_SECONDS) -> list[Finding]:
    """Runs every check, for features written to `output`; an import may take `seconds`."""
    environment, packages, machine = os.environ, installed(), find_accelerators()
    runtimes = _ask_runtimes(packages, machine, environment, seconds)
    package_findings = check_packages(packages)
    remedies = {finding.check: finding.remedy for finding in package_findings if finding.remedy}
    return [
        check_system(),
        *package_findings,
        *check_imports(runtimes, remedies),
        *check_jax_numbers(runtimes),
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

    def outcome(runtime: str, is_installed: bool) -> Outcome:
        if not is_installed:
            return Outcome()
        return ask(runtime, environment, seconds, with_tpu=with_tpu)

    # A TPU serves one process at a time.
    with ThreadPoolExecutor(1 if with_tpu else 2) as pool:
        tensorflow = pool.submit(outcome, "tensorflow", build is not None)
        jax = pool.submit(outcome, "jax", "jax" in packages)
    runtimes = Runtimes(tensorflow.result(), jax.result())
    if build is None:
        return runtimes
    minor = minor_version(packages[build])
    return dataclasses.replace(runtimes, tensorflow_build=build, tensorflow_minor=minor)
