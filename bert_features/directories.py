"""Directories that appear whole or not at all."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert_features.errors import BertFeaturesError, OutputError


@contextlib.contextmanager
def replacing(to: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside `to` for a directory that takes its place when all is written.

    Args:
      to: the directory to write.
      overwrite: whether one that is there by then may be replaced.

    Raises:
      OutputError: it cannot be written; what was there is there still.
    """
    folder, old = (to.with_name(f".{to.name}.{suffix}") for suffix in ("partial", "old"))
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        yield folder
        _put(folder, to, old, overwrite=overwrite)
    except BertFeaturesError:
        raise
    except Exception as error:  # TensorFlow and safetensors have their own for a full disk
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise OutputError(f"cannot write {to}: {reason[:200]}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(folder: Path, to: Path, old: Path, *, overwrite: bool) -> None:
    """Renames `folder` to `to`; what was there goes only when that has succeeded."""
    shutil.rmtree(old, ignore_errors=True)
    if to.exists():
        if not overwrite:
            raise OutputError(f"{to} appeared meanwhile, and is not replaced; pass --overwrite")
        to.rename(old)
    try:
        folder.rename(to)
    except OSError:
        if old.exists():
            old.rename(to)
        raise
    shutil.rmtree(old, ignore_errors=True)
