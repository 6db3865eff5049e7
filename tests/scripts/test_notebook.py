"""scripts/colab_tpu.ipynb: its cells run in this process, one after the other, with `minilm`."""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import typer.main

from bert_features import read_features
from bert_features.cli import app
from tests.cli.command_line import run

NOTEBOOK = Path(__file__).resolve().parents[2] / "scripts" / "colab_tpu.ipynb"
STORED = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CELLS = {c["id"]: "".join(c["source"]) for c in STORED["cells"] if c["cell_type"] == "code"}


def execute(variables: dict[str, object], *names: str) -> None:
    for name in names:
        exec(compile(CELLS[name], f"colab_tpu.ipynb, {name}", "exec"), variables)


def run_here(python: str, option: str, module: str, *arguments: str) -> None:
    """What the notebook's `run` does, in this process; `doctor` and `verify` are only parsed."""
    assert (python, option, module) == (sys.executable, "-m", "bert_features")
    if arguments[0] in ("doctor", "verify"):
        name, *rest = arguments
        typer.main.get_command(app).commands[name].make_context(name, rest)
        return
    result = run(*arguments)
    print(result.output, end="")
    if result.exit_code:
        raise subprocess.CalledProcessError(result.exit_code, arguments)


def test_it_is_stored_clean():
    assert STORED["metadata"]["accelerator"] == "TPU"
    for cell in STORED["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    forms = [line.split()[0] for line in CELLS["settings"].splitlines() if "# @param" in line]
    assert forms == ["SOURCE", "CHECKPOINT", "TEXTS", "OUTPUT"]


@pytest.mark.slow
def test_every_cell_runs(minilm_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    variables: dict[str, object] = {}
    settings, install, *others = CELLS
    execute(variables, settings, install)
    assert "bert_features is installed" in capsys.readouterr().out
    with pytest.raises(subprocess.CalledProcessError):
        variables["run"](sys.executable, "-c", "raise SystemExit('no')")
    assert capsys.readouterr().out == "no\n"
    variables["run"] = run_here
    execute(variables, *others)
    assert "[CLS]" in capsys.readouterr().out
    file = read_features(tmp_path / "features.parquet")
    assert [feature.name for feature in file.features] == ["token", "text"]
    assert [record.features["text"].shape for record in file] == [(384,)] * 4
    (figure,) = figures
    assert [axis.get_title() for axis in figure.axes][:2] == ["texts", "the word bank"]
    plt.close(figure)


def test_without_the_package_it_says_what_to_fill_in(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="SOURCE is empty"):
        execute({}, "settings", "install")
