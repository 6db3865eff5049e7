"""scripts/venv.sh: which Python it takes, and what installs, with a made-up pip and uv."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

VENV = Path(__file__).resolve().parents[2] / "scripts" / "venv.sh"

PIP_OR_UV = """#!/bin/sh
echo "$2 $*" >>"$(dirname "$0")/calls"
[ "$2" = uv ] || [ "$4" = --quiet ] || echo "Collecting ruff"
case $2,$FAIL in pip,*pip*|uv,*uv*) echo "ERROR: no such package" >&2; exit 1 ;; esac
"""


@pytest.mark.parametrize(
    ("fail", "calls", "returncode"),
    [
        ("", ["pip", "uv"], 0),
        ("uv", ["pip", "uv", "pip"], 0),
        ("pip", ["pip", "pip"], 1),  # uv cannot be installed
    ],
)
def test_uv_installs_and_where_it_cannot_pip(tmp_path, fail, calls, returncode):
    python = tmp_path / "python"
    python.write_text(PIP_OR_UV)
    python.chmod(0o755)
    result = run_venv(f"install_packages {python} ruff --no-deps; echo done", FAIL=fail)
    lines = (tmp_path / "calls").read_text().splitlines()
    assert [line.split()[0] for line in lines] == calls
    assert lines[-1].endswith(" ruff --no-deps")
    assert (result.returncode, result.stdout) == (returncode, "" if returncode else "done\n")
    assert ("trying pip" in result.stderr) is bool(fail)
    if returncode:
        assert result.stderr.splitlines()[-1] == "ERROR: no such package"


def run_venv(command, **variables):
    return subprocess.run(
        ["bash", "-c", f"source {VENV}; {command}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_chosen_python_is_taken_or_refused_but_not_replaced():
    assert run_venv("find_python", PYTHON=sys.executable).stdout == f"{sys.executable}\n"
    result = run_venv("find_python", PYTHON="/no/python")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("no Python 3.11 or later: /no/python; ")


def test_an_environment_of_another_python_is_not_taken_for_the_chosen_one(tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text("#!/bin/sh\necho 2.7\n")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    result = run_venv(f"root={tmp_path}; install_into_venv demo", PYTHON=sys.executable)
    chosen = "{}.{}".format(*sys.version_info[:2])
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f".venv has Python 2.7, and PYTHON is {chosen}; delete .venv first, or unset PYTHON\n"
    )
