"""scripts/check_arm.sh: what it refuses before it fetches anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_arm.sh"


@pytest.mark.parametrize(
    ("python", "missing"), [(sys.executable, "apt-get"), ("/nowhere/python", "/nowhere/python")]
)
def test_what_is_missing_is_named(tmp_path, python, missing):
    for name in {"bash", "dirname", "dpkg-deb", "apt-get"} - {missing}:
        (tmp_path / name).symlink_to("/bin/bash" if name == "bash" else "/usr/bin/dirname")
    done = subprocess.run(
        ["bash", SCRIPT],
        env=os.environ | {"PATH": str(tmp_path), "PYTHON": python},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == f"check_arm.sh: {missing} is not there\n"
