"""configs/cloud/tpu_folder.yaml: its commands do what its comments say."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bert_features import ExtractConfig, read_features
from bert_features.cli import app
from tests.configs.tasks import FOLDER_TASK, ROOT, block, default_envs

# Writes down how it was called.
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >>~/calls
"""
# `extract` itself, on the CPU: there is no TPU to run on.
ON_CPU = f"""#!/usr/bin/env bash
exec {shlex.quote(sys.executable)} -m bert_features "${{@/#tpu/cpu}}"
"""


def run(home: Path, program: str, **env: str) -> subprocess.CompletedProcess[str]:
    folder = home / "environment" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bert-features").write_text(program)
    (folder / "bert-features").chmod(0o755)
    return subprocess.run(
        ["bash", "-c", block("run", FOLDER_TASK)],
        cwd=ROOT,
        env=os.environ | default_envs(FOLDER_TASK) | {"HOME": str(home)} | env,
        text=True,
        capture_output=True,
    )


def test_one_command_takes_the_folder(tmp_path: Path) -> None:
    assert run(tmp_path, STAND_IN, BUCKET="gs://my-bucket").returncode == 0
    name, *arguments = shlex.split((tmp_path / "calls").read_text())
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments).params  # exits at an unknown option or value
    assert given["inputs"] == ["gs://my-bucket/texts/"]
    assert given["output"] == "gs://my-bucket/features/"
    assert (given["device"], given["runtime"]) == ("tpu", "jax")
    assert ExtractConfig.load(given["config"], format=given["format"]).format == "parquet"


def test_a_tpu_of_several_hosts_is_refused(tmp_path: Path) -> None:
    ran = run(tmp_path, STAND_IN, BUCKET="gs://my-bucket", SKYPILOT_NUM_NODES="2")
    assert ran.returncode == 1
    assert "this TPU has 2 hosts" in ran.stderr
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("name", ["setup", "run"])
def test_commands_are_bash(name: str) -> None:
    subprocess.run(["bash", "-n", "-c", block(name, FOLDER_TASK)], check=True)


@pytest.mark.slow
def test_after_a_loss_the_same_command_goes_on(tmp_path: Path) -> None:
    """A folder of this machine stands for the bucket."""
    texts = tmp_path / "bucket" / "texts"
    texts.mkdir(parents=True)
    (texts / "a.txt").write_text("The cat sat.\n")
    (texts / "b.txt").write_text("On the mat.\nIt is.\n")
    settings = {"BUCKET": f"{tmp_path}/bucket", "CONFIG": "minilm"}
    first = run(tmp_path, ON_CPU, **settings)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "bucket" / "features"
    next(folder.glob("part-00001-*")).unlink()
    again = run(tmp_path, ON_CPU, **settings)
    assert "3, 1 of them before this run" in again.stdout
    assert len(read_features(folder)) == 3
