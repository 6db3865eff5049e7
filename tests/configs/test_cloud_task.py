"""configs/cloud/: the commands of the tasks for SkyPilot do what their comments say.

scripts/check_cloud_tasks.sh shows the tasks to SkyPilot itself.
"""

import configparser
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bert_features import read_features
from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
TASKS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "configs" / "cloud").glob("tpu*.yaml"))
}
# Writes down how it was called, and a result, with the second file that jsonl has; fails for
# an input named bad.txt.
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >>~/calls
echo >>~/calls
while [ "$1" != --output ]; do case $1 in */bad.txt) exit 1 ;; esac; shift; done
case $2 in */) exit ;; esac
echo features >"$2"
case $2 in *.jsonl) echo settings >"$2.metadata.json" ;; esac
"""


class Machine:
    """A folder as a TPU VM's home, with the bucket where SkyPilot mounts it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bucket = home / "bucket"
        self.output = self.bucket / "features"
        program = home / "environment" / "bin" / "bert-features"
        for folder in (program.parent, self.bucket / "texts"):
            folder.mkdir(parents=True)
        program.write_text(STAND_IN)
        program.chmod(0o755)

    def put(self, *names: str) -> None:
        for name in names:
            (self.bucket / "texts" / name).write_text("The cat sat.\n")

    def run(self, task: str = "tpu", **env: str) -> subprocess.CompletedProcess[str]:
        defaults = {k: v for k, v in TASKS[task]["envs"].items() if v is not None}
        return subprocess.run(
            ["bash", "-c", TASKS[task]["run"]],
            cwd=ROOT,
            env=os.environ
            | {"BUCKET": "gs://my-bucket", **defaults, "HOME": str(self.home), **env},
            text=True,
            capture_output=True,
        )

    def results(self) -> list[str]:
        return sorted(path.name for path in self.output.iterdir())

    def calls(self) -> list[list[str]]:
        """The arguments of each call of `bert-features`."""
        return [shlex.split(line) for line in (self.home / "calls").read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


def test_each_file_of_the_folder_gets_a_result(machine: Machine) -> None:
    machine.put("a.txt", "with space.jsonl")
    (machine.bucket / "texts" / "folder").mkdir()
    ran = machine.run()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("2 done, 0 there already, 0 failed\n")
    assert machine.results() == ["a.txt.parquet", "with space.jsonl.parquet"]
    assert not list((machine.home / "result").iterdir())


def test_after_a_preemption_only_missing_results_are_computed(machine: Machine) -> None:
    machine.put("a.txt", "b.txt")
    machine.output.mkdir()
    (machine.output / "a.txt.parquet").write_text("of the first machine")
    (machine.output / ".part-b.txt.parquet").write_text("half of")  # left by the first machine
    ran = machine.run()
    assert ran.stdout.endswith("1 done, 1 there already, 0 failed\n")
    assert machine.results() == ["a.txt.parquet", "b.txt.parquet"]
    assert (machine.output / "a.txt.parquet").read_text() == "of the first machine"
    assert (machine.output / "b.txt.parquet").read_text() == "features\n"


def test_a_bad_input_fails_the_job_but_not_the_others(machine: Machine) -> None:
    machine.put("a.txt", "bad.txt", "c.txt")
    ran = machine.run()
    assert ran.returncode == 1
    assert "bad.txt failed" in ran.stderr
    assert ran.stdout.endswith("2 done, 0 there already, 1 failed\n")
    assert machine.results() == ["a.txt.parquet", "c.txt.parquet"]


def test_the_second_file_of_a_result_is_kept(machine: Machine) -> None:
    machine.put("a.txt")
    assert machine.run(FORMAT="jsonl").returncode == 0
    assert machine.results() == ["a.txt.jsonl", "a.txt.jsonl.metadata.json"]


def test_an_empty_folder_is_an_error(machine: Machine) -> None:
    ran = machine.run(INPUT="typo")
    assert ran.returncode == 1
    assert ran.stderr == "error: there are no files in gs://my-bucket/typo\n"


@pytest.mark.parametrize("task", TASKS)
def test_a_tpu_of_several_hosts_is_refused(machine: Machine, task: str) -> None:
    machine.put("a.txt")
    ran = machine.run(task, SKYPILOT_NUM_NODES="2")
    assert ran.returncode == 1
    assert "this TPU has 2 hosts" in ran.stderr
    assert not (machine.home / "calls").exists()


@pytest.mark.parametrize("task", TASKS)
def test_the_call_of_a_task_writes_features(machine: Machine, task: str, toy: str) -> None:
    """The command line itself takes the call, on a CPU: there is no TPU to run on."""
    machine.put("a.txt")
    config = machine.home / "settings.toml"
    config.write_text(f'checkpoint = "{toy}"\nlayers = [-1]\n')
    ran = machine.run(task, BUCKET=str(machine.bucket), CONFIG=str(config))
    assert ran.returncode == 0, ran.stderr
    (call,) = machine.calls()
    assert call[call.index("--runtime") :] == ["--runtime", "jax", "--device", "tpu"]
    here = {"jax": "tensorflow", "tpu": "cpu"}
    result = CliRunner().invoke(app, [here.get(word, word) for word in call])
    assert result.exit_code == 0, result.output
    assert len(read_features(call[call.index("--output") + 1])) == 1


@pytest.mark.parametrize("task", TASKS)
def test_setup_calls_the_script_by_options_that_it_has(task: str) -> None:
    setup = TASKS[task]["setup"]
    subprocess.run(["bash", "-n", "-c", setup], check=True)
    (line,) = re.findall(r"^bash (scripts/\S+) (.+)$", setup, re.MULTILINE)
    script, arguments = ROOT / line[0], shlex.split(line[1])
    known = set(re.findall(r"--[a-z]+", script.read_text().split("set -euo pipefail")[0]))
    assert {word for word in arguments if word.startswith("--")} <= known
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    extras: Any = arguments[arguments.index("--extras") + 1].split(",")
    assert set(extras) <= set(settings["options.extras_require"])
