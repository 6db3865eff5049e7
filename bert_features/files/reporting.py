"""Reporting: how failures of disks and paths become the project's errors; sizes in words."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import TypedDict, Unpack

from bert_features.errors import BertFeaturesError, OutputError

# Failures of a disk or a path in the system's words, which is all that some libraries pass on.
_CODES = "ENOSPC EFBIG EDQUOT EIO EROFS EACCES EPERM ENOENT ENOTDIR EISDIR ENAMETOOLONG"
_STORAGE_REASONS = [os.strerror(getattr(errno, code)) for code in _CODES.split()]


class Reporting(TypedDict, total=False):
    """How failures are reported; `every`: not only the disk's, as libraries have their own."""

    error: type[BertFeaturesError]
    advice: str
    every: bool


@contextlib.contextmanager
def storage_errors(action: str, **report: Unpack[Reporting]) -> Iterator[None]:
    """Turns failures into "cannot ACTION: REASON; ADVICE"; the project's errors are left alone."""
    try:
        yield
    except BertFeaturesError:
        raise
    except Exception as failure:
        reason = _storage_reason(failure)
        if reason is None:
            if not report.get("every"):
                raise
            reason = " ".join(str(failure).split())[:200] or type(failure).__name__
        advice = report.get("advice", "nothing was left behind")
        error = report.get("error", OutputError)
        raise error(f"cannot {action}: {reason}; {advice}") from failure


def describe_size(count: float) -> str:
    """A number of bytes in a readable unit, as `1.2 MB`."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _storage_reason(failure: Exception) -> str | None:
    """What is wrong with the disk or the path; None if `failure` is about something else."""
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    # TensorFlow, HDF5 and safetensors raise classes of their own.
    text = " ".join(str(failure).split()).casefold()
    return next((known for known in _STORAGE_REASONS if known.casefold() in text), None)
