"""The environments of programs that do not share .venv-benchmark with the others."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarking.processes import BenchmarkError

_ROOT = Path(__file__).resolve().parents[2]


def make_environments(names: Iterable[str]) -> None:
    """Makes each environment, or completes it.

    Raises:
      BenchmarkError: an installation failed; its output is on standard error.
    """
    for name in names:
        command = 'source "$1"; install_peer "$2"'
        arguments = ["bash", "-c", command, "bash", str(_ROOT / "scripts" / "venv.sh"), name]
        if subprocess.run(arguments, stdout=sys.stderr, check=False).returncode:
            raise BenchmarkError(f"the environment .venv-benchmark-{name} cannot be made")


def pinned_versions(name: str) -> dict[str, str]:
    """Package -> version, as the requirements of an environment pin them."""
    lines = requirements(name).read_text(encoding="utf-8").splitlines()
    pins = (line.partition("#")[0].strip().partition("==") for line in lines)
    return {package: version for package, _, version in pins if version}


def requirements(name: str) -> Path:
    """The file that lists what an environment holds."""
    return _ROOT / "benchmarks" / f"requirements-{name}.txt"
