"""The command line: one module for each command.

Exit status: 0, 1 (the run failed), 2 (bad usage), or 128 + n after the signal n (130 after
Ctrl-C). An error is one line; `--debug` adds the traceback. Commands import TensorFlow when they
need it, so `--help` does not.
"""

import importlib
import sys
from typing import Any

from bert_features.cli.command import app
from bert_features.cli.edge import leave, secure_standard_streams
from bert_features.cli.help import COMMANDS
from bert_features.cli.logs import LOG_JSON, error_line, log_form

for _name in COMMANDS:  # each module registers its command
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["app", "main"]


def main() -> None:
    """Runs the console script."""
    secure_standard_streams()
    with log_form(as_json=LOG_JSON in sys.argv):
        try:
            status = app(standalone_mode=False)
        except Exception as error:
            usage: Any = error  # by its attributes: typer brings a click of its own, or takes one
            if not hasattr(usage, "exit_code"):
                raise
            if LOG_JSON in sys.argv:
                print(error_line(usage.format_message()), file=sys.stderr)
            else:
                usage.show()
            status = usage.exit_code
    if status:
        leave(status)
