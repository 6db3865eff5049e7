"""The truncation ledger: a file that says of each example what was kept and what was lost.

JSON lines, one for each example in their order, with the fields of `ExampleCounts`.
"""

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from bert_features.errors import OutputError
from bert_features.extraction.counts import ExampleCounts
from bert_features.formats import check_target


class Ledger:
    """Writes a ledger; a context manager.

    Lines go to a hidden file beside `path`, which takes its place when the `with` block ends
    without an exception, and is removed otherwise.

    Args:
      path: the file to write.
      overwrite: whether an existing file may be replaced.

    Raises:
      OutputError: the file exists, or cannot be made there.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        check_target(self.path, overwrite=overwrite)
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        try:
            self._file = self._partial.open("w", encoding="ascii")
        except OSError as error:
            raise self._failure(error) from error

    def __call__(self, example: ExampleCounts) -> None:
        """Adds one example."""
        try:
            self._file.write(json.dumps(asdict(example)) + "\n")
        except OSError as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        """Brings all lines to the disk, so that only the renaming is left to do."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
                self._put_in_place()
        finally:
            with contextlib.suppress(OSError):  # what could not be flushed goes with the file
                self._file.close()
            self._partial.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        try:
            self._partial.replace(self.path)
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(
            f"cannot write the ledger {self.path}: {error.strerror}; nothing was left behind"
        )
