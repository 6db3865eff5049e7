"""Code in README.md and docs/: Python blocks run, and commands are as the command line takes them.

docs/migrating.md and docs/recipes.md have tests of their own, `test_migrating` and `test_recipes`,
and so has docs/client.md, in tests/serving.
"""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_PAGES = [
    "README.md",
    *(
        "docs/choosing.md",
        "docs/corpora.md",
        "docs/formats.md",
        "docs/keras_and_savedmodel.md",
        "docs/monitoring.md",
        "docs/neighbors.md",
        "docs/python.md",
        "docs/quickstart.md",
        "docs/ray.md",
    ),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_blocks(page: str, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page) if name == language]


def read_commands(page: str) -> list[list[str]]:
    """The arguments of each `bert-features` command of a page's code blocks."""
    blocks = [text for name, text in BLOCK.findall(page) if name in ("", "bash")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith("bert-features ")]
    return [
        shlex.split(command.partition(" < ")[0], comments=True)[1:] for command in sorted(commands)
    ]


def parse(arguments: list[str]) -> None:
    """Parses a command as the command line does, and does not run it."""
    name, *rest = arguments
    command = typer.main.get_command(app).commands[name]
    if hasattr(command, "commands"):  # a group, as plot
        command = command.commands[rest.pop(0)]
    command.make_context(name, rest)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with what the pages name: texts, their features in two forms, a TF1 checkpoint."""
    folder = tmp_path_factory.mktemp("pages")
    texts = folder / "texts.txt"
    texts.write_text("".join(f"Text {i} of the bank.\n" for i in range(12)), encoding="utf-8")
    official = folder / "uncased_L-12_H-768_A-12"
    for arguments in (
        ["extract", texts, "--output", folder / "features.parquet", "--layers=-1"],
        ["extract", texts, "--output", f"{folder}/features/", "--shard-examples", 5],
        ["convert", "minilm", official, "--to", "tf1"],
    ):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_python_runs(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    blocks = read_blocks((ROOT / name).read_text(encoding="utf-8"), "python")
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)


def test_no_page_with_python_is_left_out():
    pages = {
        str(page.relative_to(ROOT)) for page in PAGES if read_blocks(page.read_text(), "python")
    }
    assert pages == {*PYTHON_PAGES, "docs/client.md", "docs/migrating.md", "docs/recipes.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page):
    for arguments in read_commands(page.read_text(encoding="utf-8")):
        parse(arguments)


def test_pages_with_commands_are_read():
    pages = {page.name for page in PAGES if read_commands(page.read_text(encoding="utf-8"))}
    others = {"cloud_tpu.md", "command_line.md", "corpora.md", "ray.md", "recipes.md", "tpu.md"}
    others |= {"migrating.md", "monitoring.md", "plots.md", "quickstart.md", "serving.md"}
    others |= {"neighbors.md"}
    assert pages == {"README.md", *others}


def test_a_wrong_command_is_found():
    assert read_commands("```\nbert-features extract a \\\n  --no b  # c\n```\n") == [
        ["extract", "a", "--no", "b"]
    ]
    with pytest.raises(Exception, match="No such option: --no"):
        parse(["extract", "a", "--no", "b"])
