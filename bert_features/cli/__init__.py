"""The command line, one module for each command.

Exit status: 0, 1 (the run failed) or 2 (bad usage). Errors are one line; `--debug` adds the
traceback. TensorFlow is imported by the commands that need it, not by `--help`.
"""

from bert_features.cli import (  # noqa: F401 - they register themselves
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
    """The console script."""
    app()
