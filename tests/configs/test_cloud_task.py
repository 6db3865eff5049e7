"""configs/cloud/tpu.yaml: the commands of the task for SkyPilot do what its comments say.

`scripts/check_cloud.sh skypilot` shows the task to SkyPilot itself.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bert_features import read_features
from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
TASK = yaml.safe_load((ROOT / "configs" / "cloud" / "tpu.yaml").read_text(encoding="utf-8"))
# Writes down how it was called.
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >~/call
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A TPU VM's home, with a stand-in of the command, and a bucket with one text."""
    program = tmp_path / "environment" / "bin" / "bert-features"
    for folder in (program.parent, tmp_path / "bucket" / "texts"):
        folder.mkdir(parents=True)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "bucket" / "texts" / "a.txt").write_text("The cat sat.\n")
    return tmp_path


def run_task(home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    defaults = {k: v for k, v in TASK["envs"].items() if v is not None}
    return subprocess.run(
        ["bash", "-c", TASK["run"]],
        cwd=ROOT,
        env=os.environ | defaults | {"HOME": str(home), "BUCKET": str(home / "bucket"), **env},
        text=True,
        capture_output=True,
    )


def test_each_host_of_a_tpu_has_its_share(home: Path) -> None:
    ran = run_task(home, SKYPILOT_NUM_NODES="2", SKYPILOT_NODE_RANK="1")
    assert ran.returncode == 0, ran.stderr
    call = shlex.split((home / "call").read_text())
    assert call[call.index("--shard") + 1] == "1/2"


def test_the_call_of_the_task_writes_features(home: Path, toy: str) -> None:
    """The command line itself takes the call, on a CPU: there is no TPU to run on."""
    ran = run_task(home, CHECKPOINT=toy)
    assert ran.returncode == 0, ran.stderr
    call = shlex.split((home / "call").read_text())
    assert call[call.index("--runtime") :] == ["--runtime", "jax", "--device", "tpu"]
    here = {"jax": "tensorflow", "tpu": "cpu"}
    result = CliRunner().invoke(app, [*(here.get(word, word) for word in call), "--layers=-1"])
    assert result.exit_code == 0, result.output
    assert len(read_features(home / "bucket" / "features")) == 1
