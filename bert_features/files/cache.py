"""The cache: its place, and locks on what is in it."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from bert_features import errors
from bert_features.files.reporting import Reporting

logger = logging.getLogger("bert_features")

CACHE_VARIABLE = "BERT_FEATURES_CACHE"

IN_CACHE: Reporting = {
    "error": errors.CheckpointError,
    "advice": f"set {CACHE_VARIABLE} to a folder that has room and that you may write",
}


def cache_dir() -> Path:
    """The folder for downloads and compiled code: $BERT_FEATURES_CACHE, or the platform's."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Holds a lock that one thread of one process can hold at a time.

    The system frees the lock when its process ends, however it ends. Without flock, filelock 4 has
    a marker file instead; one that a process killed on another machine left must be deleted.

    Args:
      path: the lock file; it stays, empty.
      waiting: what to log if another process holds the lock.

    Raises:
      OSError: `path` cannot be made.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info(waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
