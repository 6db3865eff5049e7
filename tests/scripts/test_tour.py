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
