"""configs/cloud/kaggle/: the notebook's call of `extract`, and what run.sh refuses.

`scripts/check_cloud.sh kaggle` runs both with the kaggle client, against a stand-in of the server.
"""

import configparser
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest
import typer

from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "configs" / "cloud" / "kaggle"
RUN = (FOLDER / "run.sh").read_text()
METADATA = json.loads((FOLDER / "kernel-metadata.json").read_text())
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >"$0.call"
"""


@pytest.fixture
def notebook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extract", FOLDER / METADATA["code_file"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_accepts_the_call(notebook: ModuleType, tmp_path: Path) -> None:
    programs, code = tmp_path / "bin", tmp_path / "code"
    for folder in (programs, code):
        folder.mkdir()
    for name in ("b.txt", "a.jsonl", "constraints.txt", "bert_features-0.1.0-py3-none-any.whl"):
        (code / name).touch()
    (programs / "bert-features").write_text(STAND_IN)
    (programs / "bert-features").chmod(0o755)
    notebook.extract(programs, code, tmp_path / "features")
    name, *arguments = shlex.split((programs / "bert-features.call").read_text())
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments).params  # exits at an unknown option or value
    assert given["inputs"] == [str(code / "a.jsonl"), str(code / "b.txt")]
    assert given["output"] == f"{tmp_path}/features/"
    assert (given["runtime"], given["device"]) == ("jax", "tpu")
    assert given["checkpoint"] == "bert-base-uncased"


def test_its_files_agree() -> None:
    assert METADATA["machine_shape"] == "TpuV5E8"
    assert METADATA["enable_internet"] is True  # pip, and the checkpoint
    assert "docker_image" not in METADATA  # an image would be one without a TPU
    assert METADATA["id"] == f"USERNAME/{METADATA['title']}"
    (source,) = METADATA["dataset_sources"]
    assert f'input="{source.replace("USERNAME", "$user")}"' in RUN
    text = (FOLDER / METADATA["code_file"]).read_text()
    (client,) = set(re.findall(r"kaggle==[\d.]+", RUN + text))
    (extras,) = re.findall(r"\{wheel\}\[(\S+)\]", text)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert client
    assert set(extras.split(",")) <= set(setup["options.extras_require"])
