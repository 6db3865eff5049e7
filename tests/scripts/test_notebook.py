"""scripts/colab_tpu.ipynb: its cells run in this process and in Jupyter, with `minilm`.

After a change of its code, `python scripts/run_notebook.py` renews the outputs that it stores.
"""

import platform
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pytest
import typer.main

from bert_features import read_features
from bert_features.cli import app
from tests.cli.command_line import run
from tests.cli.forks import fork
from tests.corpus.runs import shards_in, shards_of, wait_until

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NOTEBOOK = SCRIPTS / "colab_tpu.ipynb"
STORED = nbformat.read(NOTEBOOK, as_version=4)
CELLS = {cell.id: cell.source for cell in STORED.cells if cell.cell_type == "code"}
OUTPUTS = {cell.id: cell.outputs for cell in STORED.cells if cell.cell_type == "code"}
RUN_NOTEBOOK = runpy.run_path(str(SCRIPTS / "run_notebook.py"))
BEFORE_RUN = ("package", "commands")
BEFORE_EXTRACT = ("doctor", "folder", "texts")
COMPARED = ("padded to 128", "as extract does", "ratio", "largest difference")
LINES = 24
OF_NO_OUTPUT = ["settings", "install", "doctor", "texts"]  # doctor and pip describe the machine


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
    """What the notebook's `run` does, in this process; `doctor` is only parsed."""
    assert python == sys.executable
    if arguments[0].endswith(".py"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [*arguments])
            runpy.run_path(arguments[0])
        return
    name, *rest = without_module(arguments)
    if name == "doctor":
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


def test_it_stores_the_outputs_of_its_code():
    code = RUN_NOTEBOOK["hash_code"](STORED.cells)
    assert STORED.metadata["outputs_of"] == code, "run: python scripts/run_notebook.py"
    assert [name for name in CELLS if not OUTPUTS[name]] == OF_NO_OUTPUT
    assert holds_figure(OUTPUTS["plot"])
    assert NOTEBOOK.stat().st_size < 500_000


def test_its_outputs_say_nothing_of_the_machine_that_made_them():
    cells = [cell for cell in STORED.cells if cell.cell_type == "code"]
    assert not any(cell.execution_count or "execution" in cell.metadata for cell in cells)
    outputs = [output for name in OUTPUTS for output in OUTPUTS[name]]
    texts = [output.get("text", "") for output in outputs]
    assert {output.output_type for output in outputs} == {"stream", "display_data"}
    absolute_path = r"(?<![\w.)\]])/\w"
    time = r"\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d"
    assert re.findall(rf"{absolute_path}|{time}", "\n".join(texts)) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 13), reason="takes over a minute; Colab has Python 3.13")
def test_it_runs_from_top_to_bottom_in_jupyter(minilm_dir, tmp_path, monkeypatch):
    """With the first texts of its own. The other tests run its cells on each Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # everything is here
    write_texts("mine.txt")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (settings,) = (cell for cell in notebook.cells if cell.id == "settings")
    settings.source += f'\nTEXTS, TEXTS_PER_FILE = "mine.txt", {LINES // 3}'
    RUN_NOTEBOOK["execute"](notebook, tmp_path)
    assert notebook.metadata["language_info"]["version"] == platform.python_version()
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert "ERROR" not in outputs["install"][0].text
    assert holds_figure(outputs["plot"])
    assert len(read_features(tmp_path / "features")) == LINES


def write_texts(name: str) -> None:
    """The first of the notebook's own texts."""
    default = session()
    execute(default, "package", "texts")
    with Path(default["TEXTS"]).open() as texts, Path(name).open("w") as mine:
        mine.writelines(next(texts) for _ in range(LINES))


def holds_figure(outputs) -> bool:
    return any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@pytest.mark.release
def test_a_new_session_resumes_what_a_killed_one_began(minilm_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    write_texts("mine.txt")
    settings = {"TEXTS": "mine.txt", "TEXTS_PER_FILE": 1}

    first = session(**settings)
    execute(first, *BEFORE_RUN)
    with pytest.raises(subprocess.CalledProcessError):
        first["run"](sys.executable, "-c", "raise SystemExit('no')")
    first["run"] = run_here
    execute(first, *BEFORE_EXTRACT)
    first["run"] = run_killed
    execute(first, "extract")
    kept, finished = shards_of(tmp_path / "features"), shards_in(tmp_path / "features")
    assert 2 <= finished <= len(kept) < LINES  # it may end before it notes its last file
    printed = capsys.readouterr().out
    assert "bert_features is installed\na " in printed
    assert "the numbers and the speed of a TPU are not checked" in printed
    assert "\nno\nthis is not Colab: Drive is not checked" in printed

    second = session(**settings)
    execute(second, *BEFORE_RUN)
    second["run"] = run_here
    execute(second, *[name for name in CELLS if name not in ("settings", "install", *BEFORE_RUN)])
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
    ("source", "output", "folder", "asked"),
    [
        ("", "mine", "/content/drive/MyDrive/mine/", ["drive /content/drive"]),
        ("", "gs://bucket/mine/", "gs://bucket/mine/", ["user"]),
        ("/content/drive/a.whl", "gs://b/a/", "gs://b/a/", ["user", "drive /content/drive"]),
    ],
)
def test_on_colab_it_asks_for_drive_or_for_a_bucket(source, output, folder, asked, monkeypatch):
    calls: list[str] = []
    colab = SimpleNamespace(
        auth=SimpleNamespace(authenticate_user=lambda: calls.append("user")),
        drive=SimpleNamespace(mount=lambda path: calls.append(f"drive {path}")),
    )
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    variables = session(SOURCE=source, OUTPUT=output)
    assert list(CELLS)[:3] == ["settings", "folder", "package"]  # the wheel may be on Drive
    execute(variables, "folder")
    assert (variables["FOLDER"], calls) == (folder, asked)


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("mine.whl", "mine.whl[demo,gcs]"),
        ("git+https://here", "bert_features[demo,gcs] @ git+https://here"),
        ("", "bert_features-0.10.0-py3-none-any.whl[demo,gcs]"),  # a wheel that was uploaded
    ],
)
def test_one_line_installs_what_this_runtime_lacks(source, package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for version in ("0.2.0", "0.10.0", "0.9"):
        Path(f"bert_features-{version}-py3-none-any.whl").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    variables = session(SOURCE=source, OUTPUT="gs://bucket/mine")
    execute(variables, "package")
    assert variables["PACKAGE"] == package
    pip, _, rest = CELLS["install"].partition("\n")
    assert pip == '%pip install --quiet "{PACKAGE}" matplotlib'
    with pytest.raises(RuntimeError, match="pip did not install"):  # which `%pip` does not raise
        exec(rest, variables)
