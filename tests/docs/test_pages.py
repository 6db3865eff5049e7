"""Code in README.md and docs/: Python blocks run, and the command line takes the commands.

The commands in the text of docs/how_we_know.md exist: their scripts, options, files and tests.
"""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from bert_features.cli import app
from tests.markers import of_release

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# `test_choosing`, `test_integrations`, `test_migrating` and `test_recipes` run the Python of these,
# tests/serving the block of the client.
TESTED_ELSEWHERE = {"choosing.md", "integrations.md", "migrating.md", "recipes.md", "serving.md"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_blocks(page: str, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page) if name == language]


def read_commands(page: str) -> list[list[str]]:
    """The arguments of each `bert-features` command of a page's code blocks."""
    blocks = [text for name, text in BLOCK.findall(page) if name in ("", "bash")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith("bert-features ")]
    return [shlex.split(re.split(" [<>] ", each)[0], comments=True)[1:] for each in commands]


def parse(arguments: list[str]) -> None:
    """Parses a command as the command line does, and does not run it."""
    name, *rest = arguments
    command = typer.main.get_command(app).commands[name]
    if hasattr(command, "commands"):  # a group, as plot
        command = command.commands[rest.pop(0)]
    command.make_context(name, rest)


def read_inline_commands(page: str) -> list[list[str]]:
    """The commands between back quotes in the text of a page."""
    codes = re.findall(r"`((?:bash|bert-features|python) [^`]+)`", page)
    return [shlex.split(code) for code in codes]


def check_command(command: list[str]) -> None:
    """Raises if the command, a file or test that it names, or an option does not exist."""
    program, *rest = command
    if program == "bert-features":
        parse(rest)
    elif rest[:2] == ["-m", "pytest"]:
        paths, _, word = " ".join(rest[2:]).partition(" -k ")
        texts = [read_tests(ROOT / path) for path in paths.split()]
        assert all(re.search(rf"^def test_\w*{word}", text, re.MULTILINE) for text in texts)
    else:
        script = ROOT / rest[0]
        text = script.with_suffix(".py" if rest[1:] else script.suffix).read_text(encoding="utf-8")
        options = [each for each in rest if each.startswith("--")]
        assert [each for each in options if f'"{each}"' not in text] == []


def read_tests(path: Path) -> str:
    """The text of a module of tests, or of a folder's modules."""
    files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with what the pages name: texts and their features in two forms."""
    folder = tmp_path_factory.mktemp("pages")
    texts = folder / "texts.txt"
    texts.write_text("".join(f"Text {i} of the bank.\n" for i in range(12)), encoding="utf-8")
    for output in ("features.parquet", "features/"):
        arguments = ["extract", str(texts), "--output", f"{folder}/{output}", "--layers=-1"]
        arguments += ["--shard-examples", "5"] if output.endswith("/") else []
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    return folder


PYTHON_PAGES = [
    of_release(page) if page.name == "python.md" else page
    for page in PAGES
    if page.name not in TESTED_ELSEWHERE
    if read_blocks(page.read_text(encoding="utf-8"), "python")
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.name)
def test_python_runs(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    namespace: dict[str, object] = {}
    for block in read_blocks(page.read_text(encoding="utf-8"), "python"):
        exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page):
    for arguments in read_commands(page.read_text(encoding="utf-8")):
        parse(arguments)


INLINE = read_inline_commands((ROOT / "docs" / "how_we_know.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", INLINE, ids=" ".join)
def test_commands_that_show_how_we_know_exist(command):
    check_command(command)
