"""Checks of installed packages by their metadata alone: the packages are not imported.

`importlib.metadata` finds the distributions, so a test can check a folder of its own.
"""

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bert_features.doctor.finding import Finding

# With a later libtpu, importing tensorflow-tpu 2.20.0 aborts the process, because
# ConfigureDistributedTpuOp_DoWork is missing. Tried: 0.0.14 to 0.0.30 work; 0.0.34, 0.0.43.2 and
# 0.0.52 do not. The same range as in setup.cfg; a test compares them.
LIBTPU_OF_TENSORFLOW_TPU = ">=0.0.14,<0.0.31"

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
_SHOWN = (*_BUILDS, "tensorflow-text", "keras", "jax", "jaxlib", "libtpu")

Packages = Mapping[str, Distribution]


def installed(path: Sequence[str] | None = None) -> dict[str, Distribution]:
    """The distributions on a path; of each name, the one that Python would import.

    Args:
      path: folders to search; None takes sys.path.
    """
    found: dict[str, Distribution] = {}
    folders = sys.path if path is None else list(path)
    for distribution in importlib.metadata.distributions(path=folders):
        name = distribution.metadata["Name"]
        if name and _has_version(distribution):  # if not, an interrupted installation left it
            found.setdefault(canonicalize_name(name), distribution)
    return found


def check_packages(packages: Packages) -> list[Finding]:
    """Runs all checks of this module, in the order of the table."""
    return [
        *check_requirements(packages),
        *check_builds(packages),
        *check_tensorflow_text(packages),
        *check_libtpu(packages),
        *check_demands(packages),
    ]


def tensorflow_build(packages: Packages) -> Distribution | None:
    """The distribution that `import tensorflow` should load."""
    return next((packages[name] for name in _BUILDS if name in packages), None)


def check_requirements(packages: Packages) -> list[Finding]:
    """The requirements of bert_features: a finding for each that is not met, else one for all."""
    own = packages.get("bert-features")
    # On sys.path, but not installed: without these nothing runs.
    wanted = _requirements(own) if own else [Requirement(n) for n in ("tensorflow", "keras")]
    unmet = [requirement for requirement in wanted if not _is_met(requirement, packages)]
    if unmet:
        return [
            Finding(
                canonicalize_name(requirement.name),
                "broken",
                _describe_unmet(requirement, packages),
                _install([requirement], packages),
            )
            for requirement in unmet
        ]
    versions = [f"{name} {packages[name].version}" for name in _SHOWN if name in packages]
    found = f"all {len(wanted)} required packages are installed; {', '.join(versions)}"
    return [Finding("packages", "ok", found)]


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
    if build is None or text is None or minor_version(text) == minor_version(build):
        return []
    found = f"{text.version}, but {name_of(build)} is {build.version}: minor versions must be equal"
    wanted = Requirement(f"tensorflow-text=={minor_version(build)}.*")
    return [Finding("tensorflow-text", "broken", found, _install([wanted], packages))]


def check_libtpu(packages: Packages) -> list[Finding]:
    """libtpu: tensorflow-tpu works with a range of versions; otherwise JAX chooses."""
    build, libtpu = tensorflow_build(packages), packages.get("libtpu")
    if build is None or name_of(build) != TPU_BUILD:
        return []
    if libtpu and SpecifierSet(LIBTPU_OF_TENSORFLOW_TPU).contains(libtpu.version):
        return []
    found = (
        f"{libtpu.version if libtpu else 'not installed'}; {TPU_BUILD} {build.version} needs "
        f"{LIBTPU_OF_TENSORFLOW_TPU} and aborts the process with later versions"
    )
    remedy = _install([Requirement(f"libtpu{LIBTPU_OF_TENSORFLOW_TPU}")], packages)
    return [Finding("libtpu", "broken", found, remedy)]


def check_demands(packages: Packages) -> list[Finding]:
    """Requirements of TensorFlow, Keras and JAX that the installed packages do not meet."""
    findings = []
    for name in _DEMANDING:
        unmet = [
            requirement
            for requirement in _requirements(packages.get(name))
            # `check_libtpu` knows better than tensorflow-tpu.
            if requirement.name != "libtpu" and not _is_met(requirement, packages)
        ]
        if unmet:
            found = "; ".join(_describe_unmet(requirement, packages) for requirement in unmet)
            remedy = _install(unmet, packages)
            findings.append(Finding(f"needs of {name}", "warning", found, remedy))
    return findings


def name_of(distribution: Distribution) -> str:
    """The canonical name of a distribution, as tensorflow-tpu."""
    return canonicalize_name(distribution.metadata["Name"])


def minor_version(distribution: Distribution) -> str:
    """The first two numbers of a distribution's version, as 2.20."""
    version = Version(distribution.version)
    return f"{version.major}.{version.minor}"


def _has_version(distribution: Distribution) -> bool:
    try:
        Version(distribution.metadata["Version"] or "")
    except InvalidVersion:
        return False
    return True


def _requirements(distribution: Distribution | None) -> list[Requirement]:
    """The requirements of a distribution on this platform, without its extras."""
    found = []
    for text in (distribution.requires if distribution is not None else None) or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # a form that only its installer understands
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(requirement)
    return found


def _is_met(requirement: Requirement, packages: Packages) -> bool:
    name = canonicalize_name(requirement.name)
    has = tensorflow_build(packages) if name == "tensorflow" else packages.get(name)
    return has is not None and requirement.specifier.contains(has.version, prereleases=True)


def _describe_unmet(requirement: Requirement, packages: Packages) -> str:
    has = packages.get(canonicalize_name(requirement.name))
    now = "not installed" if has is None else has.version
    return f"{requirement.name} is {now} (required: {requirement.specifier or 'any version'})"


def _install(wanted: Iterable[Requirement], packages: Packages) -> str:
    """The command that installs packages, but not plain TensorFlow over the TPU build."""
    alone: list[str] = []
    rest: list[str] = []
    for requirement in wanted:
        pulls = TPU_BUILD in packages and requirement.name in _REQUIRING_TENSORFLOW
        (alone if pulls else rest).append(f"'{requirement.name}{requirement.specifier}'")
    commands = [f"pip install --no-deps {' '.join(alone)}"] if alone else []
    commands += [f"pip install {' '.join(rest)}"] if rest else []
    return " && ".join(commands)
