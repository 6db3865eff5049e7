"""A path that the system refuses: one line that names it, whichever command takes it."""

import inspect
import shlex
import string

import pytest

from bert_features.cli import app
from tests.cli.command_line import run

# Parameters that are paths. What a command lacks is not asked.
PATHS = {
    *("inputs", "input_path", "texts", "config", "checkpoint", "config_file", "vocab_file"),
    *("scale_from", "cache", "ledger", "folder", "paths", "a", "b", "features"),
    *("token_file", "out", "to", "output", "report", "test"),
}
# Each command with its required paths; "extract " is one into a folder. Other paths are added as
# options.
COMMANDS = {
    "extract": "{inputs} -o {output} --layers=-1 --level sequence --dtype int8",
    "extract ": "{inputs} -o {output}/ --layers=-1 --level sequence --dtype int8",
    "plan": "{inputs} --layers=-1 --level sequence --dtype int8",
    "status": "{folder}",
    "check": "{paths}",
    "compare": "{a} {b}",
    "tokenize": "{input_path}",
    "shuffle": "{features} {out} --seed 1",
    "neighbors": "{features} --query a",
    "serve": "",
    "inspect": "{checkpoint}",
    "convert": "{checkpoint} {out} --to tf1",
    "export": "--to {to} --signature ids --layers=-1",
    "plot histogram": "a --token a -o {output}",
    "plot similarity": "a -o {output}",
    "plot attention": "a -o {output}",
    "plot cka": "{a} {b} -o {output}",
    "plot word": "a {input_path} -o {output}",
    "plot scatter": "{input_path} -o {output}",
    "plot probe": "{input_path} -o {output} --label-field label",
}
# `doctor` says what is wrong with its folder. `compile` needs a process of its own. A plan does not
# open the cache, a folder has no ledger, `shuffle` reads its source first, and the others are texts
# and a format.
OTHERS = {
    *("extract .ledger", "plan.cache", "shuffle.out"),
    *("plot similarity.texts", "plot attention.texts", "convert.to"),
}
VALID = {
    **dict.fromkeys(["inputs", "input_path"], "in.csv"),
    **dict.fromkeys(["features", "a", "b"], "f.npz"),
    **{"out": "new", "to": "new", "checkpoint": "toy"},
}
SUFFIXES = {"input_path": ".csv", "test": ".csv"}


def commands(group=app, before=""):
    for each in group.registered_commands:
        yield before + (each.name or each.callback.__name__), inspect.signature(each.callback)
    for each in group.registered_groups:
        yield from commands(each.typer_instance, f"{before}{each.name} ")


def path_parameters():
    signatures = dict(commands())
    assert signatures.keys() - {"doctor", "compile"} == {c.strip() for c in COMMANDS}
    for command in COMMANDS:
        for name in PATHS & signatures[command.strip()].parameters.keys():
            if f"{command}.{name}" not in OTHERS:
                yield command, name


@pytest.fixture(scope="module")
def folder(tmp_path_factory, toy):
    folder = tmp_path_factory.mktemp("paths")
    (folder / "in.csv").write_text("text,label\n" + "".join(f"a {i},{i % 2}\n" for i in range(9)))
    (folder / "toy").symlink_to(toy)
    for suffix in ("", ".csv", ".npz", ".svg"):
        (folder / f"loop{suffix}").symlink_to(f"loop{suffix}")
    settings = ["--checkpoint", toy, "--layers=-1", "--level", "sequence"]
    assert run("extract", folder / "in.csv", "-o", folder / "f.npz", *settings).exit_code == 0
    return folder


@pytest.mark.parametrize("parameter", sorted(path_parameters()), ids=".".join)
def test_a_path_that_the_system_refuses_is_one_line(parameter, folder, monkeypatch):
    monkeypatch.chdir(folder)
    command, name = parameter
    line = COMMANDS[command]
    required = {field for _, field, _, _ in string.Formatter().parse(line) if field}
    option = "" if name in required else f" --{name.replace('_', '-')} {{{name}}}"
    new = ".npz" if "extract" in command else ".svg"
    suffix = new if name == "output" else SUFFIXES.get(name, "")
    for refused in ("x" * 300, "x" * 300 + "/a", "loop", "in.csv/a"):
        values = {**VALID, "output": f"new{new}", name: refused + suffix}
        result = run(*shlex.split(f"{command} {line}{option}".format_map(values)))
        (error,) = result.stderr.splitlines()
        assert result.exit_code in (1, 2)
        assert error.startswith("bert-features: ")
        assert refused[:50] in error
        assert "a bug" not in error
