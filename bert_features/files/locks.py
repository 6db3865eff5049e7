"""Locks on files. The system frees a lock when its process ends, however it ends.

Without flock, filelock 4 has a marker file instead; one that a process killed on another machine
left must be deleted.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock

logger = logging.getLogger("bert_features")

FOREVER = -1.0


def take_lock(path: Path, *, seconds: float = 0.0) -> "BaseFileLock | None":
    """Takes a lock; None if another thread or process still holds it after this time.

    Raises:
      OSError: the file cannot be made, or the file system has no locks.
      NotImplementedError: this system has no locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return None
    return lock


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Holds a lock until the block ends; if another process holds it, logs `waiting`.

    The lock file stays, empty.

    Raises:
      OSError: `path` cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take_lock(path)
    if lock is None:
        logger.info(waiting)
        lock = take_lock(path, seconds=FOREVER)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool | None:
    """Whether a lock is held, which takes no permission to write; None if that is unknown."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
    except OSError:  # there is no such lock
        return False
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    finally:
        os.close(descriptor)
    return False
