"""The command line: one module for each command.

Exit status: 0, 1 (the run failed), 2 (bad usage), or 128 + n after the signal n (130 after
Ctrl-C). An error is one line; `--debug` adds the traceback. Commands import TensorFlow when they
need it, so `--help` does not.
"""

import sys

import typer

from bert_features.cli import (  # noqa: F401 - each registers its command
    check,
    compile,
    convert,
    doctor,
    download,
    export,
    extract,
    inspect,
    plan,
    status,
    tokenize,
    verify,
)
from bert_features.cli.command import app
from bert_features.cli.edge import guard, leave, secure_standard_streams

__all__ = ["app", "main"]


def main() -> None:
    """Runs the console script."""
    try:
        with guard(debug="--debug" in sys.argv, signals=False):
            secure_standard_streams()
            app()
    except typer.Exit as ending:
        leave(ending.exit_code)
    except SystemExit as ending:
        if ending.code:
            leave(ending.code)
        raise
