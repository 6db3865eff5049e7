"""scripts/tour.sh: it runs as a whole; and what it says and stops when a step fails."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bert_features import read_features

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "scripts" / "tour.sh"

# Shards of a run that never ends, then of one that is finished, and a service that waits.
PROGRAM = """#!/bin/sh
case "$1 $2" in
serve*) exec sleep 600 ;;
"extract lines.txt")
  [ -e shards ] && exit
  mkdir shards
  touch shards/part-00001-of-2
  exec sleep 600
  ;;
esac
"""


def start(script: Path, *arguments: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", script, *arguments],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed. Nothing of its session may still run."""
    output = process.communicate(timeout=500)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return output


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """The folder of an interpreter beside a made-up `bert-features`; `curl` is to be added."""
    programs = tmp_path / "programs"
    programs.mkdir()
    # No file of features is there to be read.
    read = 'case "$2" in *read_features*) exit ;; esac'
    python = f'#!/bin/sh\n{read}\nexec {sys.executable} "$@"\n'
    for name, source in (("python", python), ("bert-features", PROGRAM)):
        (programs / name).write_text(source)
        (programs / name).chmod(0o755)
    return programs


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("minilm_dir")
def test_every_step_works(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    process = start(TOUR, folder, PYTHON=sys.executable)
    printed, errors = finish(process)
    assert process.returncode == 0, errors
    assert ElementTree.parse(folder / "word.svg").getroot().tag.endswith("svg")
    kept = int(re.search(r"^(\d+) of 30 shards are finished$", errors, re.MULTILINE)[1])
    assert 1 <= kept < 30  # it may be killed before it notes its second file
    assert f"examples   600, {20 * kept} before this run\n" in printed
    assert len(read_features(folder / "shards", verify=True)) == 600
    assert re.search(r"^ +3 +0\.\d+ ", printed, re.MULTILINE)  # the third neighbor
    assert (folder / "answer.json").read_text().startswith('{"object":"list"')
    assert (
        "\n[CLS] the bank of the river was muddy . [SEP]\n{'layer_output_0': (10, 384)" in printed
    )
    (row,) = re.findall(r"^\[\[(.*)\]$", printed, re.MULTILINE)
    itself, alike, other = map(float, row.split())
    assert itself == pytest.approx(1, abs=0.01)
    assert itself > alike > other
    assert printed.endswith(f" seconds. The files are in {folder}\n")


@pytest.mark.parametrize(
    ("curl", "status", "error"),
    [
        ("exit 7", 1, "tour.sh: this command failed: curl -sf "),
        ("kill -INT 0; exec sleep 600", 130, ""),  # Ctrl-C, which goes to all processes
    ],
)
def test_a_failed_step_ends_it_and_the_service(
    made_up: Path, tmp_path: Path, curl: str, status: int, error: str
) -> None:
    (made_up / "curl").write_text(f"#!/bin/sh\n{curl}\n")
    (made_up / "curl").chmod(0o755)
    process = start(TOUR, tmp_path / "files", PYTHON=str(made_up / "python"))
    printed, errors = finish(process)
    assert (process.returncode, errors[: len(error)]) == (status, error)
    assert len(errors.splitlines()) == bool(error)
    assert re.search(r"\nbert-features serve --port \d+ &\ncurl [^\n]+\n\Z", printed)
