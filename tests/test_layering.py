"""The rooms of the package: what stands in its root, and who may use whom."""

import subprocess
import sys
from pathlib import Path

import pytest

import bert_features

PACKAGE = Path(bert_features.__file__).parent
PYPROJECT = PACKAGE.parent / "pyproject.toml"
FILES_IN_ROOT = {"__init__.py", "__init__.pyi", "__main__.py", "errors.py", "py.typed"}


def check(config):
    """Runs `lint-imports`: its exit status and its report."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--config", str(config), "--no-cache"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_rooms_use_the_rooms_that_the_table_allows():
    status, report = check(PYPROJECT)
    assert status == 0, report
    assert "0 broken" in report


def test_an_arrow_that_is_not_allowed_breaks_the_table(tmp_path):
    """extraction uses formats; a table that forbids it must fail."""
    table = PYPROJECT.read_text(encoding="utf-8") + (
        "\n[[tool.importlinter.contracts]]\n"
        'name = "wrong"\ntype = "forbidden"\n'
        'source_modules = ["bert_features.extraction"]\n'
        'forbidden_modules = ["bert_features.formats"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    status, report = check(tmp_path / "pyproject.toml")
    assert status == 1
    assert "wrong BROKEN" in report


def test_the_root_holds_rooms_and_little_else():
    entries = [path for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert {path.name for path in entries if path.is_file()} == FILES_IN_ROOT
    assert len(entries) <= 31
    for room in entries:
        if room.is_dir():
            assert (room / "__init__.py").read_text(encoding="utf-8").startswith('"""'), room


@pytest.mark.parametrize("name", [n for n in bert_features.__all__ if n != "__version__"])
def test_every_public_name_can_be_imported(name):
    assert getattr(bert_features, name).__name__ == name
    assert name in dir(bert_features)
