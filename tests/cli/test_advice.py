"""The options that messages and helps name exist, on the command that they are about."""

import ast
import re
from pathlib import Path

import pytest
import typer

import bert_features
from bert_features.cli import app
from bert_features.cli.settings import as_options

PACKAGE = Path(bert_features.__file__).parent
# Of pip, Docker, Ray and our own installation script.
OTHERS = {
    *("--editable", "--force-reinstall", "--no-deps", "--gpus", "--privileged", "--head"),
    *("--with-tpu", "--no"),
}
# Rooms that a single command uses; a module of the command line belongs to its own command.
ROOMS = {"neighbors": "neighbors", "plots": "plot", "serving": "serve", "tpu": "compile"}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def options_of(group):
    """Command -> its options; those of a group's commands together."""
    return {
        name: {
            option
            for each in (*getattr(command, "commands", {}).values(), command)
            for parameter in each.params
            for option in (*parameter.opts, *parameter.secondary_opts, "--help")
        }
        for name, command in group.commands.items()
    }


COMMANDS = options_of(typer.main.get_command(app))
EVERY = set().union(*COMMANDS.values()) | OTHERS | {"--version"}


def advice_in(path):
    """(line, text, options) of each string that names options, or settings as errors do."""
    tree = ast.parse(path.read_text())
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(getattr(node, "body", None), list) and isinstance(node.body[0], ast.Expr)
    }
    parts = {
        part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and node not in docstrings | parts:
            pieces = getattr(node, "values", [node])
            text = "".join(str(getattr(piece, "value", "")) for piece in pieces)
            if found := set(OPTION.findall(as_options(text) if " " in text else text)):
                yield node.lineno, text, found


@pytest.mark.parametrize("room", sorted(p.name for p in PACKAGE.iterdir() if p.is_dir()))
def test_the_options_that_messages_name_exist(room):
    for path in sorted((PACKAGE / room).rglob("*.py")):
        own = ROOMS.get(room, path.stem if room == "cli" else "")
        for line, text, options in advice_in(path):
            named = [name for name in COMMANDS if re.search(rf"\b{name}\b", text)]
            known = set().union(*(COMMANDS[name] for name in [own, *named] if name in COMMANDS))
            wrong = options - (known | OTHERS if own in COMMANDS else EVERY)
            assert not wrong, f"{path}:{line}: {text}"
