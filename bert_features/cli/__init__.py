"""The command line: one module for each command.

Exit status: 0, 1 (the run failed) or 2 (bad usage). An error is one line; `--debug` adds the
traceback. Commands import TensorFlow when they need it, so `--help` does not.
"""

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
    tokenize,
    verify,
)
from bert_features.cli.command import app

__all__ = ["app", "main"]


def main() -> None:
    """Runs the console script."""
    app()
