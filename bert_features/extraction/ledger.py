"""The truncation ledger: a file that lists, for each example, what was kept and what was lost.

JSON lines, one for each example in their order, with the fields of `ExampleCounts`; the ones of
spans are left out where they are 0.
"""

import contextlib
import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Self

from bert_features.extraction.counts import SPAN_COUNTS, ExampleCounts
from bert_features.files import Staging, real_target, storage_errors


class Ledger:
    """Writes a ledger; a context manager.

    Lines go to a hidden file beside `path`, which takes its place when the `with` block ends
    without an exception, and is removed otherwise.

    Args:
      path: the file to write. Of a symbolic link, the file it points to is written.
      overwrite: whether an existing file may be replaced.

    Raises:
      OutputError: the file exists, or cannot be written there.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = real_target(path)
        self._errors = functools.partial(storage_errors, f"write the ledger {self.path}")
        with self._errors(), contextlib.ExitStack() as undo:
            self._staging = Staging([self.path], overwrite=overwrite)
            undo.callback(self._staging.discard)
            self._file = self._staging.create(self._staging.path(self.path))
            undo.pop_all()

    def __call__(self, example: ExampleCounts) -> None:
        """Adds one example."""
        values = {n: v for n, v in asdict(example).items() if v or n not in SPAN_COUNTS}
        self._file.write(json.dumps(values, allow_nan=False).encode("ascii") + b"\n")
        with self._errors():
            self._staging.raise_failure()

    def finish(self) -> None:
        """Brings all lines to the disk, so that only the renaming is left to do."""
        with self._errors():
            self._staging.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if exception[0] is None:
                with self._errors():
                    self._staging.commit()
        finally:
            self._staging.discard()
