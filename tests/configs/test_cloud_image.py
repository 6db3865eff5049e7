"""configs/cloud/Dockerfile and constraints.txt name files, extras and versions that fit.

The machines of tpu.yaml and ray_tpu.yaml install these versions too.

`scripts/check_cloud.sh dockerfile` lints the Dockerfile and runs its steps.
"""

import configparser
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
CLOUD = ROOT / "configs" / "cloud"
TEXT = (CLOUD / "Dockerfile").read_text()
PINS = dict(
    line.split("==")
    for line in (CLOUD / "constraints.txt").read_text().splitlines()
    if "==" in line and line[0] != "#"
)


@pytest.fixture
def setup() -> configparser.ConfigParser:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings


def test_its_versions_are_those_that_the_package_allows(setup: configparser.ConfigParser) -> None:
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", TEXT)
    lines = setup["options"]["install_requires"].split("\n")
    for extra in extras.split(","):
        lines += setup["options.extras_require"][extra].split("\n")
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len(wanted) > 20
    for each in wanted:
        name = each.name.lower().replace("_", "-")
        assert each.specifier.contains(PINS[name]), f"{each} is not {PINS[name]}"
    tested = (ROOT / "scripts" / "constraints.txt").read_text()
    for name, version in re.findall(r"^(tensorflow\S*|fsspec|gcsfs)==(\S+)$", tested, re.MULTILINE):
        assert PINS[name] == version


@pytest.mark.parametrize("name", ["Dockerfile", "tpu.yaml", "ray_tpu.yaml"])
def test_whatever_replaces_a_machine_has_the_same_versions(name: str) -> None:
    """A run does not resume with others."""
    text = (CLOUD / name).read_text()
    commands = [text]
    if name != "Dockerfile":
        task = yaml.safe_load(text)
        commands = task["setup_commands"] if "setup_commands" in task else [task["setup"]]
    lines = "\n".join(commands).replace("\\\n", "").splitlines()
    installs = [line for line in lines if re.search(r"setup_tpu\.sh|bin/pip install", line)]
    assert len(installs) == (2 if name == "ray_tpu.yaml" else 1)
    for line in installs:
        assert re.search(r"--constraints? \S*constraints\.txt", line)
        assert "scripts/constraints" not in line
    assert set(re.findall(r"3\.12\.\d+", text)) == {"3.12.11"}


def test_what_it_copies_is_there_and_sent() -> None:
    sent = (CLOUD / "Dockerfile.dockerignore").read_text().splitlines()
    assert sent[1] == "*"
    copied = [
        word
        for line in re.findall(r"^COPY (?!--)(.+) \S+$", TEXT, re.MULTILINE)
        for word in line.split()
    ]
    assert set(copied) == {line[1:] for line in sent if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_it_runs_the_command_line_without_root(setup: configparser.ConfigParser) -> None:
    (program,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', TEXT, re.MULTILINE)
    assert program in setup["options.entry_points"]["console_scripts"]
    (user,) = re.findall(r"^USER (\d+)$", TEXT, re.MULTILINE)
    assert int(user) > 0
