"""How a child process reports to its parent: stage by stage, so that a crash leaves a trace.

A stage writes one JSON line when it begins, `{"stage": …}`, and one when it ends, with `result` or
`error`. Standard output carries only these lines; the output of libraries goes to standard error.
"""

import contextlib
import json
import os
import resource
from collections.abc import Iterator
from typing import Any


class Stages:
    """Writes the stages of this process to what was its standard output."""

    def __init__(self) -> None:
        # Imports may abort here; a core dump of gigabytes must not follow.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._lines = os.dup(1)
        os.dup2(2, 1)

    @contextlib.contextmanager
    def stage(self, name: str, *, vital: bool = False) -> Iterator[dict[str, Any]]:
        """Runs a stage; an exception in it is reported.

        Args:
          name: name of the stage.
          vital: whether the process ends if the stage fails.

        Yields:
          A dict to put the result into.
        """
        self._write({"stage": name})
        result: dict[str, Any] = {}
        try:
            yield result
        except Exception as error:  # a broken package may raise anything
            lines = str(error).strip().splitlines() or [""]
            self._write({"stage": name, "error": f"{type(error).__name__}: {lines[-1]}"[:300]})
            if vital:
                raise SystemExit(1) from error
        else:
            self._write({"stage": name, "result": result})

    def _write(self, message: dict[str, Any]) -> None:
        os.write(self._lines, json.dumps(message).encode() + b"\n")
