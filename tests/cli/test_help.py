"""The help: options in groups, every choice's values, examples that parse."""

import re
import shlex

import pytest
import typer

from bert_features.cli import app
from bert_features.cli.help import COMMANDS as HELP_ORDER
from bert_features.cli.help import GROUPS, LIMITS
from tests.cli.command_line import run

COMMANDS = typer.main.get_command(app).commands


def sections(text):
    """Heading -> the text below it."""
    parts = re.split(r"^(\S.*):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_options_come_in_groups():
    found = sections(run("extract", "--help-all").stdout)
    assert list(found) == [*(group for group in GROUPS if group != LIMITS), "Examples"]
    about = run("extract", "--help").stdout.partition("Arguments:")[0]
    assert re.findall("--[a-z]+", about) == ["--layers", "--combine", "--level"]
    for group, option in (
        ("Files", "--ledger"),
        ("Input", "--text-field"),
        ("Model", "--vocab-file"),
        ("Outputs", "--pooling"),
        ("Long texts", "--stride"),
        ("Devices and batches", "--batch-tokens"),
        ("Other options", "--debug"),
    ):
        assert option in found[group]


def test_the_commands_stand_under_four_heads_with_three_examples():
    found = sections(run("--help").stdout)
    options, *heads, examples = found
    assert (options, len(heads), examples) == ("Options", 4, "Examples")
    text = "".join(found[head] for head in heads)
    rows = dict(re.findall(r"^  (\w+)  +(\S.*(?:\n {6,}\S.*)*)", text, flags=re.MULTILINE))
    assert [*rows, "compile"] == list(HELP_ORDER)
    assert "Also, with a help of its own: compile\n" in text
    for sentence in rows.values():
        assert sentence.endswith(".")
        assert not sentence.endswith("...")
    lines = [shlex.split(line)[1:] for line in found[examples].splitlines() if line]
    assert len(lines) == 3
    for name, *arguments in lines:
        COMMANDS[name].make_context(name, arguments)


def options_in(text):
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_short_and_the_long_one_whole(name):
    parameters = COMMANDS[name].params
    short = options_in(run(name, "--help").stdout)
    hidden = [p.opts[0] for p in parameters if getattr(p, "hidden", False)]
    assert len(short) <= 30
    assert not set(hidden) & set(short)
    if not hidden:
        assert "--help-all" not in short
        return
    whole = run(name, "--help-all").stdout
    assert set(options_in(whole)) == {*short, *hidden}
    assert f"{len(hidden)} more options:" in run(name, "--help").stdout
    assert "more options" not in whole


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name):
    help = run(name, "-h")
    assert help.stdout == run(name, "--help").stdout
    examples = re.findall(
        r"^  bert-features (.*)$", sections(help.stdout)["Examples"], re.MULTILINE
    )
    assert examples
    for example in examples:  # on one line, to be copied
        own, command, *arguments = (
            shlex.split(example)[0],
            COMMANDS[name],
            *shlex.split(example)[1:],
        )
        if hasattr(command, "commands"):  # plot
            kind, *arguments = arguments
            command = command.commands[kind]
        assert own == name
        command.make_context(name, arguments)


def test_an_argument_that_is_given_as_an_option_is_named():
    message = run("inspect", "--checkpoint", "minilm").stderr
    assert "No such option: --checkpoint; CHECKPOINT is an argument: pass its value" in message
    assert "is an argument" not in run("inspect", "--jsn").stderr


def test_an_option_of_another_library_names_the_one_here():
    message = run("extract", "in.txt", "-o", "o.npz", "--output-hidden-states").stderr
    assert (
        "No such option: --output-hidden-states; did you mean --layers embeddings,all?" in message
    )
    assert "--hidden-act" not in message
