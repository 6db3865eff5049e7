"""What a child process tells its parent: stage by stage, so that a sudden end leaves a trace.

Each stage is one JSON line as it begins, `{"stage": …}`, and one as it ends, with `result` or
`error`. Standard output carries these lines alone; what libraries print goes to standard error.
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
        # An import that aborts is expected here; gigabytes of memory in a file are not.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._lines = os.dup(1)
        os.dup2(2, 1)

    @contextlib.contextmanager
    def stage(self, name: str, *, vital: bool = False) -> Iterator[dict[str, Any]]:
        """Runs a stage; an exception in it is reported.

        Args:
          name: what to call it.
          vital: whether nothing can follow if it fails.

        Yields:
          Where its result goes.
        """
        self._write({"stage": name})
        result: dict[str, Any] = {}
        try:
            yield result
        except Exception as error:  # whatever a broken package raises
            lines = str(error).strip().splitlines() or [""]
            self._write({"stage": name, "error": f"{type(error).__name__}: {lines[-1]}"[:300]})
            if vital:
                raise SystemExit(1) from error
        else:
            self._write({"stage": name, "result": result})

    def _write(self, message: dict[str, Any]) -> None:
        os.write(self._lines, json.dumps(message).encode() + b"\n")
