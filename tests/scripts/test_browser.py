"""scripts/browser.sh with a made-up npm: a package that cannot be had, and one that is another."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "browser.sh"


@pytest.mark.parametrize(
    ("npm", "message"),
    [
        ("exit 1", "npm could not fetch @sparticuz/chromium@"),
        ("echo other > package.tgz", "has another SHA-256 than scripts/browser.sh names"),
    ],
)
def test_a_fetch_that_fails_says_so_and_leaves_nothing(tmp_path, npm, message):
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "npm").write_text(f"#!/bin/sh\n{npm}\n")
    (commands / "npm").chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    folder = tmp_path / "venv" / "chromium"
    done = subprocess.run(
        ["bash", SCRIPT, folder], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert list(folder.parent.iterdir()) == []
