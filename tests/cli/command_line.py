"""Runs the command line: in this process, or as the console script in a process of its own."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

from typer import testing

from bert_features.cli import app

# Its runner makes the program of an app anew for each call, in 40 ms.
testing._get_command = functools.cache(testing._get_command)

SMALL = ["--uncased", "--max-seq-length", "16", "--batch-size", "8"]


def run(*arguments, stdin=None):
    """Runs a command in this process."""
    return testing.CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def program(*arguments, env=None, **options):
    """Starts the console script in a process of its own; `env` has more environment variables."""
    command = [sys.executable, "-m", "bert_features", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_CPP")}
    environment |= env or {}
    options = {"stdin": subprocess.DEVNULL, "text": True, "env": environment} | options
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


AFRESH = """
import json, sys
from tests.cli.command_line import run

for command in json.loads(sys.argv[1]):
    result = run(*command)
    print(json.dumps([result.exit_code, result.stdout, result.stderr, [*sys.modules]]))
"""


def run_afresh(commands, folder, env=None):
    """Runs commands one after the other in a process that has imported no framework.

    `env` has more environment variables.

    Returns:
      The exit status, standard output, standard error and imported modules after each.
    """
    lines = json.dumps([[str(a) for a in command] for command in commands])
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", AFRESH, lines],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | path | (env or {}),
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return [(*said, set(modules)) for *said, modules in results]
