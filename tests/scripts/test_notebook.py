"""scripts/colab_tpu.ipynb: its cells run in this process, one after the other, with `minilm`."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import typer.main

from bert_features import read_features
from bert_features.cli import app
from tests.cli.command_line import run
from tests.cli.forks import fork
from tests.corpus.runs import shards_in, shards_of, wait_until

NOTEBOOK = Path(__file__).resolve().parents[2] / "scripts" / "colab_tpu.ipynb"
STORED = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CELLS = {c["id"]: "".join(c["source"]) for c in STORED["cells"] if c["cell_type"] == "code"}
BEFORE_EXTRACT = ("doctor", "verify", "folder", "texts")
COMPARED = ("padded to 128", "as extract does", "ratio", "largest difference")
LINES = 24


def session(**settings: object) -> dict[str, object]:
    """The variables of a new session whose settings are filled in."""
    variables: dict[str, object] = {}
    execute(variables, "settings")
    assert settings.keys() < variables.keys()
    return variables | settings


def execute(variables: dict[str, object], *names: str) -> None:
    for name in names:
        source = CELLS[name]
        if program := re.match(r"%%writefile (\S+)\n", source):
            Path(program[1]).write_text(source[program.end() :], encoding="utf-8")
        else:
            exec(compile(source, f"colab_tpu.ipynb, {name}", "exec"), variables)


def run_here(python: str, *arguments: str) -> None:
    """What the notebook's `run` does, in this process; `doctor` and `verify` are only parsed."""
    assert python == sys.executable
    if arguments[0].endswith(".py"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [*arguments])
            runpy.run_path(arguments[0])
        return
    name, *rest = without_module(arguments)
    if name in ("doctor", "verify"):
        typer.main.get_command(app).commands[name].make_context(name, rest)
        return
    result = run(name, *rest)
    print(result.output, end="")
    if result.exit_code:
        raise subprocess.CalledProcessError(result.exit_code, arguments)


def run_killed(python: str, *arguments: str) -> None:
    """`run` where the machine goes away when two files of the folder are finished."""
    with fork(*without_module(arguments)) as process:
        wait_until(lambda: shards_in(Path("features")) >= 2 or not process.is_alive())


def without_module(arguments: tuple[str, ...]) -> tuple[str, ...]:
    assert arguments[:2] == ("-m", "bert_features")
    return arguments[2:]


def test_it_is_stored_clean():
    assert STORED["metadata"]["accelerator"] == "TPU"
    for cell in STORED["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    forms = [line.split()[0] for line in CELLS["settings"].splitlines() if "# @param" in line]
    assert forms == ["SOURCE", "CHECKPOINT", "TEXTS", "OUTPUT", "TEXTS_PER_FILE"]


@pytest.mark.slow
def test_a_new_session_resumes_what_a_killed_one_began(minilm_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    default = session()
    execute(default, "install", "texts")
    with Path(default["TEXTS"]).open() as texts, Path("mine.txt").open("w") as mine:
        mine.writelines(next(texts) for _ in range(LINES))
    settings = {"TEXTS": "mine.txt", "TEXTS_PER_FILE": 1}

    first = session(**settings)
    execute(first, "install")
    with pytest.raises(subprocess.CalledProcessError):
        first["run"](sys.executable, "-c", "raise SystemExit('no')")
    first["run"] = run_here
    execute(first, *BEFORE_EXTRACT)
    first["run"] = run_killed
    execute(first, "extract")
    kept, finished = shards_of(tmp_path / "features"), shards_in(tmp_path / "features")
    assert 2 <= finished <= len(kept) < LINES  # it may end before it notes its last file
    printed = capsys.readouterr().out
    assert "the numbers and the speed of a TPU are not checked\nbert_features is inst" in printed
    assert "\nno\nthis is not Colab: Drive is not checked" in printed

    second = session(**settings)
    execute(second, "install")
    second["run"] = run_here
    execute(second, *[name for name in CELLS if name not in ("settings", "install")])
    printed = capsys.readouterr().out
    assert re.search(rf"examples +{LINES}, {finished} before this run\n", printed)
    assert kept.items() < shards_of(tmp_path / "features").items()
    assert "[CLS]" in printed
    features = read_features(tmp_path / "features")
    assert [feature.name for feature in features.features] == ["token", "text"]
    assert [record.features["text"].shape for record in features] == [(384,)] * LINES
    (figure,) = figures
    assert [axis.get_title() for axis in figure.axes][:2] == ["texts", "the word bank"]
    plt.close(figure)
    assert re.search(rf"\n{LINES} texts, \d+ tokens, minilm, float32 on cpu\n", printed)
    numbers = [re.search(rf"\n{name} +([\d,.e+-]+)", printed)[1] for name in COMPARED]
    padded, extracted, ratio, difference = (float(n.replace(",", "")) for n in numbers)
    assert ratio == pytest.approx(extracted / padded, abs=0.1)
    assert 0 <= difference < 1e-4


@pytest.mark.parametrize(
    ("output", "folder", "asked"),
    [
        ("mine", "/content/drive/MyDrive/mine/", ["drive /content/drive"]),
        ("gs://bucket/mine/", "gs://bucket/mine/", ["user"]),
    ],
)
def test_on_colab_it_asks_for_drive_or_for_a_bucket(output, folder, asked, monkeypatch):
    calls: list[str] = []
    colab = SimpleNamespace(
        auth=SimpleNamespace(authenticate_user=lambda: calls.append("user")),
        drive=SimpleNamespace(mount=lambda path: calls.append(f"drive {path}")),
    )
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    variables = session(OUTPUT=output)
    execute(variables, "folder")
    assert (variables["FOLDER"], calls) == (folder, asked)


@pytest.mark.parametrize(
    ("source", "requirement"),
    [
        ("mine.whl", "mine.whl[demo,jax,gcs]"),
        ("git+https://here", "bert_features[demo,jax,gcs] @ git+https://here"),
        ("", "bert_features-0.1.0.whl[demo,jax,gcs]"),  # a wheel that was uploaded
    ],
)
def test_it_installs_what_this_runtime_lacks(source, requirement, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("bert_features-0.1.0.whl").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(sys, "executable", "echo")
    execute(session(SOURCE=source, OUTPUT="gs://bucket/mine"), "install")
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"installing {source or 'bert_features-0.1.0.whl'}",
        f"-m pip install --quiet {requirement} matplotlib",
    ]


def test_without_the_package_it_says_what_to_fill_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="SOURCE is empty"):
        execute({}, "settings", "install")
