"""Checks of installed packages by their metadata alone: the packages are not imported.

`importlib.metadata` finds the distributions, so a test can check a folder of its own.
"""

import contextlib
import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bert_features.check.finding import Finding
from bert_features.machine.tpu_installation import LIBTPU_RANGE

TPU_BUILD = "tensorflow-tpu"
# Distributions that install the package `tensorflow`. If several are installed, the first in this
# list is the one to keep.
_BUILDS = (
    TPU_BUILD,
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tensorflow-macos",
    "tensorflow-gpu",
    "tf-nightly",
)
# These require plain `tensorflow`, which would overwrite the TPU build.
_REQUIRING_TENSORFLOW = ("tensorflow-text", "tensorflow-hub", "tf-keras")
# Distributions whose requirements are checked: those that depend on each other's versions.
_DEMANDING = (*_BUILDS, "tensorflow-text", "keras", "jax", "jaxlib")
# Requirements without which all runs but some work, and what those runs use.
_NEEDED_FOR = {"tensorflow-hub": "only TF-Hub handles need it"}

Packages = Mapping[str, Distribution]


def installed(path: list[str] | None = None) -> dict[str, Distribution]:
    """The distributions on a path (sys.path if None), by name: those that Python would import."""
    packages: dict[str, Distribution] = {}
    for distribution in importlib.metadata.distributions(path=sys.path if path is None else path):
        # An interrupted installation leaves one without a name or a version.
        with contextlib.suppress(InvalidVersion, TypeError):
            if {"Name", "Version"} <= set(distribution.metadata):
                Version(distribution.version)
                packages.setdefault(canonicalize_name(distribution.name), distribution)
    return packages


def check_packages(packages: Packages) -> list[Finding]:
    """Runs all checks of this module, in the order of the table."""
    return [
        *check_requirements(packages),
        *check_builds(packages),
        *check_tensorflow_text(packages),
        *check_libtpu(packages),
        *check_demands(packages),
    ]


def tensorflow_build(packages: Packages) -> str | None:
    """The name of the distribution that `import tensorflow` should load."""
    return next((name for name in _BUILDS if name in packages), None)


def minor_version(distribution: Distribution) -> str:
    """The first two numbers of a distribution's version, as 2.20."""
    version = Version(distribution.version)
    return f"{version.major}.{version.minor}"


def check_requirements(packages: Packages) -> list[Finding]:
    """The requirements of bert_features: a finding for each that is not met, else one for all."""
    ours = packages.get("bert-features")
    # On sys.path, but not installed: without these nothing runs.
    needs = _requirements(ours) if ours else [Requirement(n) for n in ("tensorflow", "keras")]
    findings = []
    for requirement in _unmet(needs, packages):
        name, found = canonicalize_name(requirement.name), _describe_unmet(requirement, packages)
        use = _NEEDED_FOR.get(name)
        remedy = _install([requirement], packages)
        findings.append(
            Finding(name, "warning", f"{found}; {use}", remedy)
            if use
            else Finding(name, "broken", found, remedy)
        )
    shown = [name for name in (*_DEMANDING, "libtpu") if name in packages]
    versions = ", ".join(f"{name} {packages[name].version}" for name in shown)
    every = f"all {len(needs)} required packages are installed; {versions}"
    return findings or [Finding("packages", "ok", every)]


def check_builds(packages: Packages) -> list[Finding]:
    """Several builds of TensorFlow, which hold the same files: the last one installed has won."""
    kept, *others = [name for name in _BUILDS if name in packages] or [""]
    if not others:
        return []
    listed = " and ".join(f"{name} {packages[name].version}" for name in (kept, *others))
    remedy = (
        f"pip uninstall -y {' '.join(others)} && "
        f"pip install --force-reinstall --no-deps {kept}=={packages[kept].version}"
    )
    return [
        Finding("tensorflow", "warning", f"several builds, of the same files: {listed}", remedy)
    ]


def check_tensorflow_text(packages: Packages) -> list[Finding]:
    """tensorflow-text, which loads only into a TensorFlow of the same minor version."""
    build, text = tensorflow_build(packages), packages.get("tensorflow-text")
    if build is None or text is None or minor_version(text) == minor_version(packages[build]):
        return []
    has, minor = packages[build].version, minor_version(packages[build])
    found = f"{text.version}, but {build} is {has}: minor versions must be equal"
    remedy = _install([Requirement(f"tensorflow-text=={minor}.*")], packages)
    return [Finding("tensorflow-text", "broken", found, remedy)]


def check_libtpu(packages: Packages) -> list[Finding]:
    """libtpu: tensorflow-tpu works with a range of versions; otherwise JAX chooses."""
    requirement = Requirement(f"libtpu{LIBTPU_RANGE}")
    if TPU_BUILD not in packages or not _unmet([requirement], packages):
        return []
    libtpu = packages["libtpu"].version if "libtpu" in packages else "not installed"
    found = (
        f"{libtpu}; {TPU_BUILD} {packages[TPU_BUILD].version} needs {LIBTPU_RANGE} and aborts the "
        "process with later versions"
    )
    return [Finding("libtpu", "broken", found, _install([requirement], packages))]


def check_demands(packages: Packages) -> list[Finding]:
    """Requirements of TensorFlow, Keras and JAX that the installed packages do not meet."""
    findings = []
    for name in _DEMANDING:
        # `check_libtpu` knows better than tensorflow-tpu.
        needs = [need for need in _requirements(packages.get(name)) if need.name != "libtpu"]
        if unmet := _unmet(needs, packages):
            found = "; ".join(_describe_unmet(requirement, packages) for requirement in unmet)
            remedy = _install(unmet, packages)
            findings.append(Finding(f"needs of {name}", "warning", found, remedy))
    return findings


def _requirements(distribution: Distribution | None) -> list[Requirement]:
    """The requirements of a distribution on this platform, without its extras."""
    requirements = []
    for text in (distribution.requires if distribution is not None else None) or []:
        with contextlib.suppress(InvalidRequirement):  # a form that only its installer understands
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                requirements.append(requirement)
    return requirements


def _unmet(requirements: Iterable[Requirement], packages: Packages) -> list[Requirement]:
    def is_met(requirement: Requirement) -> bool:
        name: str | None = canonicalize_name(requirement.name)
        has = packages.get((tensorflow_build(packages) if name == "tensorflow" else name) or "")
        return has is not None and requirement.specifier.contains(has.version, prereleases=True)

    return [requirement for requirement in requirements if not is_met(requirement)]


def _describe_unmet(requirement: Requirement, packages: Packages) -> str:
    has = packages.get(canonicalize_name(requirement.name))
    now = "not installed" if has is None else has.version
    return f"{requirement.name} is {now} (required: {requirement.specifier or 'any version'})"


def _install(requirements: Iterable[Requirement], packages: Packages) -> str:
    """The command that installs packages, but not plain TensorFlow over the TPU build."""
    alone: list[str] = []
    rest: list[str] = []
    for requirement in requirements:
        pulls = TPU_BUILD in packages and requirement.name in _REQUIRING_TENSORFLOW
        (alone if pulls else rest).append(f"'{requirement.name}{requirement.specifier}'")
    commands = [f"pip install --no-deps {' '.join(alone)}"] if alone else []
    commands += [f"pip install {' '.join(rest)}"] if rest else []
    return " && ".join(commands)
