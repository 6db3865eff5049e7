"""The command line: one module for each command.

Exit status: 0, 1 (the run failed), 2 (bad usage), or 128 + n after the signal n (130 after
Ctrl-C). An error is one line; `--debug` adds the traceback. Commands import TensorFlow when they
need it, so `--help` does not.
"""

import sys
from typing import Any

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
    neighbors,
    plan,
    plot,
    serve,
    status,
    tokenize,
    verify,
)
from bert_features.cli.command import app
from bert_features.cli.edge import guard, leave, secure_standard_streams
from bert_features.cli.logs import LOG_JSON, error_line, log_form

__all__ = ["app", "main"]


def main() -> None:
    """Runs the console script."""
    as_json = LOG_JSON in sys.argv
    try:
        with log_form(as_json=as_json), guard(debug="--debug" in sys.argv, signals=False):
            secure_standard_streams()
            if as_json:
                _run_as_json()
            else:
                app()
    except typer.Exit as ending:
        leave(ending.exit_code)
    except SystemExit as ending:
        if ending.code:
            leave(ending.code)
        raise


def _run_as_json() -> None:
    """Runs the app; bad usage, which it would explain in several lines, becomes one JSON line."""
    try:
        status = app(standalone_mode=False)
    except Exception as error:
        # By its attributes: typer brings a click of its own, or takes the one that is installed.
        usage: Any = error
        if not (hasattr(usage, "format_message") and hasattr(usage, "exit_code")):
            raise
        print(error_line(usage.format_message()), file=sys.stderr)
        status = usage.exit_code
    if status:
        raise typer.Exit(status)
