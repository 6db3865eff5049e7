"""The command line: one module for each command.

Exit status: 0, 1 (the run failed), 2 (bad usage), or 128 + n after the signal n (130 after
Ctrl-C). An error is one line; `--debug` adds the traceback. Commands import TensorFlow when they
need it, so `--help` does not.
"""

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from bert_features.cli import command
from bert_features.cli.edge import leave, report, secure_standard_streams
from bert_features.cli.help import COMMANDS
from bert_features.cli.logs import LOG_JSON, error_line, log_form
from bert_features.errors import printable


def __getattr__(name: str) -> Any:
    """`app`, the application of all commands."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _register(COMMANDS)
    return command.app


def _register(names: Iterable[str]) -> None:
    for name in names:  # each module registers its command
        importlib.import_module(f"{__name__}.{name}")


def main() -> None:
    """Runs the console script."""
    with log_form(as_json=LOG_JSON in sys.argv):
        try:
            secure_standard_streams()
            # All modules together take as long as typer and pydantic.
            _register({*COMMANDS} & {*sys.argv[1:2]} or COMMANDS)
            status = command.app(standalone_mode=False)
            if not status:  # else an error is printed already
                sys.stdout.flush()
        except Exception as error:
            usage: Any = error  # by its attributes: typer brings a click of its own, or takes one
            status = getattr(usage, "exit_code", None)
            if status is None:
                status = report(error, debug="--debug" in sys.argv)
            elif LOG_JSON in sys.argv:
                print(error_line(usage.format_message()), file=sys.stderr)
            else:
                usage.message = printable(usage.message)
                usage.show()
    if status:
        leave(status)
