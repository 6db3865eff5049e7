"""scripts/quickstart.sh, without its installation: it extracts features and shows them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "quickstart.sh"
VENV = 'root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\ninstall_into_venv() { echo "$1"; }\n'


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("minilm_dir")
def test_it_shows_the_three_banks(tmp_path):
    scripts, programs = tmp_path / "scripts", tmp_path / ".venv" / "bin"
    for folder in (scripts, programs):
        folder.mkdir(parents=True)
    shutil.copy(SCRIPT, scripts)
    (scripts / "venv.sh").write_text(VENV)
    for name, arguments in {"python": "", "bert-features": "-m bert_features "}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        program.chmod(0o755)
    command = ["bash", scripts / SCRIPT.name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("demo,plot,serve\n")
    assert re.search(r"^  what  .* … 384$", result.stdout, re.MULTILINE)
    cosines = map(float, re.findall(r"^  bank .* - .* (0\.\d+)$", result.stdout, re.MULTILINE))
    robber, *others = cosines
    assert len(others) == 2
    assert robber > max(others)  # the two banks of money
