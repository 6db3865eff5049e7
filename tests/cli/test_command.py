"""What all commands share: help without the frameworks, one-line errors, exit status."""

import re
import subprocess
import sys

import pytest
import typer

from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from tests.cli.command_line import run


def test_help_and_import_do_not_load_the_frameworks():
    check = (
        "import sys, bert_features, bert_features.cli\n"
        "try: bert_features.cli.app(['extract', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'keras', 'jax', 'tensorflow_text', 'numpy', 'pyarrow', 'h5py'}\n"
        "sys.exit(sorted(heavy & sys.modules.keys()) or None)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--max-seq-length" in result.stdout


@pytest.mark.parametrize("options", [["--batch-size", "many"], ["--format", "xml"], ["--no-such"]])
def test_bad_usage(text, out, options):
    result = run("extract", text, "-o", out / "o.parquet", *options)
    assert result.exit_code == 2
    assert list(out.iterdir()) == []


def test_version():
    import bert_features

    assert run("--version").stdout == f"bert-features {bert_features.__version__}\n"


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_is_a_sentence_that_stands_alone(name):
    """It begins with a capital or a file's name and ends with a full stop; a default may follow."""
    command = COMMANDS[name]
    short = command.get_short_help_str(limit=68)  # what 80 columns leave for it
    assert not short.endswith("..."), short
    descriptions = tuple(field.description for field in ExtractConfig.model_fields.values())
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        assert text, parameter.name
        if text.startswith(descriptions):  # tests/config holds these
            continue
        assert re.match(r"[A-Z]|[\w.]+\.(json|txt)\b", text), text
        assert re.search(r"[.…]( \[default: [^]]*\])?$", text), text
