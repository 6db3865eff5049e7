"""Checks of installed packages by their metadata alone: the packages are not imported.

`importlib.metadata` finds the distributions, so a test can check a folder of its own.
"""

import base64
import csv
import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bert_features.doctor.finding import Finding

# The same ranges as in setup.cfg; a test compares them.
TENSORFLOW = ">=2.20,<2.22"
KERAS = ">=3.10"
# With a later libtpu, importing tensorflow-tpu 2.20.0 aborts the process, because
# ConfigureDistributedTpuOp_DoWork is missing. Tried: 0.0.14 to 0.0.30 work; 0.0.34, 0.0.43.2 and
# 0.0.52 do not.
LIBTPU_OF_TENSORFLOW_TPU = ">=0.0.14,<0.0.31"
_TENSORFLOW_TPU = "==2.20.0"

TPU_BUILD = "tensorflow-tpu"
# Distributions that install the package `tensorflow`. If several are installed, the first in this
# list is the one to keep.
_BUILDS = (
    TPU_BUILD,
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tensorflow-macos",
    "tensorflow-intel",
    "tensorflow-gpu",
    "tf-nightly",
    "tf-nightly-cpu",
    "tf-nightly-tpu",
)
_PACKAGE = "tensorflow/__init__.py"
# Files of less than 200 kB whose bytes differ between the builds of a version (2.20.0 compared).
_BUILD_FILES = (
    "tensorflow/python/platform/build_info.py",
    "tensorflow/python/tpu/_pywrap_tpu_embedding.so",
    "tensorflow/python/_pywrap_tfcompile.so",
)
# Separate checks cover these.
_CHECKED_APART = ("tensorflow", "tensorflow-text", "keras", "libtpu")
# These require plain `tensorflow`, which would overwrite the TPU build.
_REQUIRING_TENSORFLOW = ("tensorflow-text", "tensorflow-hub", "tf-keras")
_SUPPORTED = {
    "plain": [f"tensorflow{TENSORFLOW}"],
    "tpu": [f"{TPU_BUILD}{_TENSORFLOW_TPU}", f"libtpu{LIBTPU_OF_TENSORFLOW_TPU}"],
}
# Distributions whose requirements are checked: those that depend on each other's versions.
_DEMANDING = (*_BUILDS, "tensorflow-text", "keras", "jax", "jaxlib")

Packages = Mapping[str, Distribution]


def installed(path: Sequence[str] | None = None) -> dict[str, Distribution]:
    """The distributions on a path; of each name, the one that Python would import.

    Args:
      path: folders to search; None takes sys.path.
    """
    found: dict[str, Distribution] = {}
    everything = (
        importlib.metadata.distributions()
        if path is None
        else importlib.metadata.distributions(path=list(path))
    )
    for distribution in everything:
        name = distribution.metadata["Name"]
        if (
            name and _version(distribution) is not None
        ):  # if not, an interrupted installation left it
            found.setdefault(canonicalize_name(name), distribution)
    return found


def check_packages(packages: Packages) -> list[Finding]:
    """Runs all checks of this module, in the order of the table."""
    return [
        check_requirements(packages),
        check_tensorflow(packages),
        check_tensorflow_text(packages),
        check_keras(packages),
        *check_libtpu(packages),
        check_jax(packages),
        *check_demands(packages),
    ]


def tensorflow_build(packages: Packages) -> Distribution | None:
    """The distribution that `import tensorflow` should load."""
    return next((packages[name] for name in _BUILDS if _holds_tensorflow(packages, name)), None)


def check_requirements(packages: Packages) -> Finding:
    """The requirements of bert_features, except TensorFlow and Keras."""
    own = packages.get("bert-features")
    wanted = [
        requirement
        for requirement in _requirements(own)
        if canonicalize_name(requirement.name) not in _CHECKED_APART
    ]
    unmet = [requirement for requirement in wanted if not _is_met(requirement, packages)]
    if not unmet:
        return Finding("requirements", "ok", f"all {len(wanted)} required packages are installed")
    found = "; ".join(_describe_unmet(requirement, packages) for requirement in unmet)
    return Finding("requirements", "broken", found, _install_unmet(unmet, packages))


def check_tensorflow(packages: Packages) -> Finding:
    """TensorFlow: one build, in a supported version, with its own files."""
    builds = [name for name in _BUILDS if _holds_tensorflow(packages, name)]
    if not builds:
        return Finding("tensorflow", "broken", "not installed", _pip_install(_SUPPORTED["plain"]))
    kept = packages[builds[0]]
    if not _is_in(kept.version, TENSORFLOW):
        found = f"{builds[0]} {kept.version}; bert_features needs {TENSORFLOW}"
        return Finding("tensorflow", "broken", found, _pip_install(_SUPPORTED[_kind(builds[0])]))
    others = builds[1:]
    reinstall = f"pip install --force-reinstall --no-deps {builds[0]}=={kept.version}"
    if others:
        reinstall = f"pip uninstall -y {' '.join(others)} && {reinstall}"
    if has_its_own_files(kept) is False:
        found = _describe_foreign_files(builds, packages)
        return Finding("tensorflow", "broken", found, reinstall, {"builds": builds})
    listed = " and ".join(f"{name} {packages[name].version}" for name in builds)
    if others:
        found = f"several builds: {listed}; the files belong to {builds[0]}"
        return Finding("tensorflow", "warning", found, reinstall, {"builds": builds})
    return Finding("tensorflow", "ok", listed)


def has_its_own_files(distribution: Distribution) -> bool | None:
    """Whether the files that differ between builds are those of this distribution.

    Returns:
      None if its RECORD has no hashes, as when it was not installed by pip.
    """
    recorded = {
        name: digest for name, digest in _record(distribution) if name in _BUILD_FILES and digest
    }
    if not recorded:
        return None
    return all(
        _digest(Path(str(distribution.locate_file(name)))) == digest
        for name, digest in recorded.items()
    )


def check_tensorflow_text(packages: Packages) -> Finding:
    """tensorflow-text, which loads only into a TensorFlow of the same minor version."""
    build = tensorflow_build(packages)
    text = packages.get("tensorflow-text")
    if build is None:
        wanted = f"tensorflow-text{TENSORFLOW}"
        found = "not installed" if text is None else f"{text.version}, but TensorFlow is missing"
        return Finding("tensorflow-text", "broken", found, _pip_install([wanted]))
    minor = minor_version(build)
    # tensorflow-text requires plain tensorflow, which would overwrite the TPU build.
    option = "--no-deps " if name_of(build) == TPU_BUILD else ""
    remedy = f"pip install {option}'tensorflow-text=={minor}.*'"
    if text is None:
        return Finding("tensorflow-text", "broken", "not installed", remedy)
    if minor_version(text) != minor:
        found = (
            f"{text.version}, but {name_of(build)} is {build.version}: minor versions must be equal"
        )
        return Finding("tensorflow-text", "broken", found, remedy)
    return Finding("tensorflow-text", "ok", text.version)


def check_keras(packages: Packages) -> Finding:
    """Keras 3, the package `keras`; Keras 2, the package `tf_keras`, may be installed as well."""
    keras = packages.get("keras")
    remedy = _pip_install([f"keras{KERAS}"])
    if keras is None:
        beside = "; tf_keras is Keras 2" if "tf-keras" in packages else ""
        return Finding("keras", "broken", f"not installed{beside}", remedy)
    if not _is_in(keras.version, KERAS):
        found = f"{keras.version}; bert_features needs Keras 3, {KERAS}"
        return Finding("keras", "broken", found, remedy)
    return Finding("keras", "ok", keras.version)


def check_libtpu(packages: Packages) -> list[Finding]:
    """libtpu: tensorflow-tpu works with a range of versions; otherwise JAX chooses."""
    build, libtpu = tensorflow_build(packages), packages.get("libtpu")
    if build is None or name_of(build) != TPU_BUILD:
        return [] if libtpu is None else [Finding("libtpu", "ok", f"{libtpu.version}, for JAX")]
    remedy = _pip_install([f"libtpu{LIBTPU_OF_TENSORFLOW_TPU}"])
    if libtpu is None:
        return [Finding("libtpu", "broken", f"not installed; {TPU_BUILD} needs it", remedy)]
    if not _is_in(libtpu.version, LIBTPU_OF_TENSORFLOW_TPU):
        found = (
            f"{libtpu.version}; {TPU_BUILD} {build.version} needs {LIBTPU_OF_TENSORFLOW_TPU} and "
            "aborts the process with later versions"
        )
        return [Finding("libtpu", "broken", found, remedy)]
    return [Finding("libtpu", "ok", f"{libtpu.version}, for {TPU_BUILD}")]


def check_jax(packages: Packages) -> Finding:
    """JAX, which is optional: only the JAX runtime and `compile` need it."""
    if "jax" not in packages:
        return Finding(
            "jax",
            "ok",
            "not installed; only the JAX runtime needs it (pip install 'jax>=0.5')",
        )
    parts = [name for name in ("jax", "jaxlib") if name in packages]
    return Finding("jax", "ok", ", ".join(f"{name} {packages[name].version}" for name in parts))


def check_demands(packages: Packages) -> list[Finding]:
    """Requirements of TensorFlow, Keras and JAX that the installed packages do not meet."""
    findings = []
    for name in _DEMANDING:
        unmet = [
            requirement
            for requirement in _requirements(packages.get(name))
            if canonicalize_name(requirement.name) not in _CHECKED_APART
            and not _is_met(requirement, packages)
        ]
        if unmet:
            found = "; ".join(_describe_unmet(requirement, packages) for requirement in unmet)
            remedy = _install_unmet(unmet, packages)
            findings.append(Finding(f"needs of {name}", "warning", found, remedy))
    return findings


def name_of(distribution: Distribution) -> str:
    """The canonical name of a distribution, as tensorflow-tpu."""
    return canonicalize_name(distribution.metadata["Name"])


def _kind(build: str) -> str:
    return "tpu" if build == TPU_BUILD else "plain"


def _is_in(version: str, specifier: str) -> bool:
    return SpecifierSet(specifier).contains(version, prereleases=True)


def _version(distribution: Distribution) -> Version | None:
    try:
        return Version(distribution.metadata["Version"] or "")
    except InvalidVersion:
        return None


def minor_version(distribution: Distribution) -> str:
    """The first two numbers of a distribution's version, as 2.20."""
    version = Version(distribution.version)
    return f"{version.major}.{version.minor}"


def _holds_tensorflow(packages: Packages, name: str) -> bool:
    """Whether a distribution is installed and holds TensorFlow's files.

    On some platforms `tensorflow` was an empty distribution that required the one with the files.
    """
    distribution = packages.get(name)
    if distribution is None:
        return False
    record = [file for file, _ in _record(distribution)]
    return not record or _PACKAGE in record


def _record(distribution: Distribution) -> list[tuple[str, str]]:
    """(path, hash as `sha256=…`) of the files of a distribution; empty if unknown."""
    # Not `Distribution.files`: for TensorFlow it makes 20,000 objects.
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return [(row[0], row[1]) for row in rows if len(row) > 1]


def _digest(path: Path) -> str | None:
    """The hash of a file in the form of RECORD; None if the file cannot be read."""
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _describe_foreign_files(builds: Sequence[str], packages: Packages) -> str:
    kept = f"{builds[0]} {packages[builds[0]].version}"
    for name in builds[1:]:
        if has_its_own_files(packages[name]):
            return f"{kept} was overwritten by {name} {packages[name].version}"
    return f"{kept}: its files are missing or were replaced"


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


def _install_unmet(unmet: Sequence[Requirement], packages: Packages) -> str:
    """The command that installs unmet requirements, but not plain TensorFlow over the TPU build."""
    build = tensorflow_build(packages)
    alone = [
        requirement
        for requirement in unmet
        if build is not None
        and name_of(build) == TPU_BUILD
        and canonicalize_name(requirement.name) in _REQUIRING_TENSORFLOW
    ]
    rest = [requirement for requirement in unmet if requirement not in alone]
    commands = []
    if alone:
        commands.append(_pip_install(map(_bare, alone), "--no-deps "))
    if rest:
        commands.append(_pip_install(map(_bare, rest)))
    return " && ".join(commands)


def _bare(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _pip_install(requirements: Iterable[str], options: str = "") -> str:
    return f"pip install {options}" + " ".join(f"'{requirement}'" for requirement in requirements)
