"""configs/cloud/gke.yaml: its command shares the files out, and `extract` takes its call.

`scripts/check_cloud.sh gke` shows the job to the schemas of Kubernetes.
"""

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from bert_features.cli import app

TEXT = (Path(__file__).resolve().parents[2] / "configs" / "cloud" / "gke.yaml").read_text()
SPEC = yaml.safe_load(TEXT)["spec"]
POD = SPEC["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENV = {each["name"]: each["value"] for each in CONTAINER["env"]}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "bert-features"
    program.parent.mkdir()
    program.write_text('#!/usr/bin/env bash\nprintf "%q " "$@" >"$CALL"\n')
    program.chmod(0o755)
    folder = tmp_path / "texts"
    folder.mkdir()
    return folder


def run_machine(texts: Path, index: int) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """How the command of one machine ended, and how it called `bert-features`."""
    call = texts.parent / f"call-{index}"
    ran = subprocess.run(
        [*CONTAINER["command"], *CONTAINER["args"]],
        env=os.environ
        | ENV
        | {
            "PATH": f"{texts.parent}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
            "CALL": str(call),
            "INPUT": f"{texts}/",
            "JOB_COMPLETION_INDEX": str(index),
        },
        text=True,
        capture_output=True,
    )
    return ran, shlex.split(call.read_text()) if call.exists() else []


def test_each_file_goes_to_one_machine(texts: Path) -> None:
    for name in ("a.txt", "b with space.txt", "c.txt", "d.txt", "e.txt"):
        (texts / name).write_text("The cat sat.\n")
    seen = []
    for index in (0, 3):
        ran, (name, *arguments) = run_machine(texts, index)
        assert ran.returncode == 0, ran.stderr
        command = typer.main.get_command(app).commands[name]
        given = command.make_context(name, arguments).params  # exits at an unknown option
        seen.append([Path(path).name for path in given["inputs"]])
        assert given["output"] == f"gs://my-bucket/features/{index}/"
        assert (given["runtime"], given["device"]) == ("jax", "tpu")
        assert given["checkpoint"] == "bert-base-uncased"
    assert seen == [["a.txt", "e.txt"], ["d.txt"]]


def test_a_machine_without_files_is_done(texts: Path) -> None:
    (texts / "a.txt").write_text("The cat sat.\n")
    ran, call = run_machine(texts, 2)
    assert (ran.returncode, call) == (0, [])
    assert "nothing to do" in ran.stdout


def test_an_empty_folder_is_an_error(texts: Path) -> None:
    ran, call = run_machine(texts, 0)
    assert ran.returncode != 0
    assert "no files" in ran.stderr
    assert call == []


def test_its_numbers_agree() -> None:
    assert ENV["SHARES"] == str(SPEC["completions"])
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]
    (rule,) = [rule for rule in SPEC["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert rule["onExitCodes"]["containerName"] == CONTAINER["name"]
    rows = re.findall(r"^#   (?:v|TPU)\d\S* +\S+-(\d+)t +(\S+) +(\S+) +(\d+)$", TEXT, re.MULTILINE)
    assert len(rows) == 3
    for in_name, _, topology, count in rows:
        assert in_name == count == str(math.prod(map(int, topology.split("x"))))
    selector = [
        POD["nodeSelector"][f"cloud.google.com/gke-tpu-{k}"] for k in ("accelerator", "topology")
    ]
    assert [*selector, str(CONTAINER["resources"]["limits"]["google.com/tpu"])] == list(rows[0][1:])
