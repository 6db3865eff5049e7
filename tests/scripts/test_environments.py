"""tests/environments/: the files agree with the bounds of setup.cfg."""

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests" / "environments").glob("*.txt"))
SCRIPT = (ROOT / "scripts" / "check_environments.sh").read_text()
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def read_versions(file):
    lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line]
    return {canonicalize_name(pin.name): Version(str(pin.specifier)[2:]) for pin in pins}


def read_bounds(*extras):
    texts = [CONFIG["options"]["install_requires"]]
    texts += [CONFIG["options.extras_require"][extra] for extra in extras]
    lines = "\n".join(texts).splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_lowest_versions_are_the_lower_bounds():
    extras = re.search(r"^all_extras=(.*)$", SCRIPT, re.MULTILINE)[1].split(",")
    versions = read_versions(ROOT / "tests/environments/lowest.txt")
    for bound in read_bounds(*extras):
        lowest = [s.version for s in bound.specifier if s.operator in (">=", "==")]
        assert [versions[canonicalize_name(bound.name)]] == [Version(v) for v in lowest], bound


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_platform_has_is_allowed_or_marked_as_replaced(file):
    versions = read_versions(file)
    replaced = {
        bound.name
        for bound in read_bounds("demo", "jax")
        if (version := versions.get(canonicalize_name(bound.name)))
        and version not in bound.specifier
    }
    assert set(re.findall(r"^(\S+)==\S+  # replaced$", file.read_text(), re.MULTILINE)) == replaced
