"""Who writes a folder: one run at a time, which holds its lock."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter, ValidationError

from bert_features.corpus import lease
from bert_features.corpus.holder import UNKNOWN, Holder
from bert_features.errors import OutputError
from bert_features.files import Location, local_path, open_store, storage_errors
from bert_features.files.object_store import ObjectStore
from bert_features.formats.manifest import FINISHED, MANIFEST

Check: TypeAlias = Callable[[], None]

_LOCK, _HOLDER = lease.LOCK, ".running"
HOLDING_FILES = frozenset({_LOCK, _HOLDER})
# `find_holder` may have the lock for a moment.
_PATIENCE_SECONDS = 0.3


_HOLDERS = TypeAdapter(Holder)


def holding(folder: Location, processes: int = 1) -> contextlib.AbstractContextManager[Check]:
    """Makes the folder and keeps other runs out of it, until the block or this process ends.

    A run that ends before it has written its manifest leaves no folder that it made. The lock file
    stays while there is something to go on with: a run that waits for it must not lose it.

    Args:
      folder: the folder.
      processes: how many processes compute, for those who ask.

    Returns:
      A context manager. It gives a function that raises OutputError if the folder is not held any
      more, which happens only at an address.

    Raises:
      OutputError: another run holds it, or it cannot be made.
    """
    me = Holder(os.getpid(), socket.gethostname(), processes)
    store = open_store(folder)
    if isinstance(store, ObjectStore):
        return _leasing(store, me)
    return _holding(local_path(folder), me)


@contextlib.contextmanager
def _leasing(store: ObjectStore, me: Holder) -> Iterator[Check]:
    with lease.Lease(store, me, seconds=lease.RENEWAL_SECONDS) as held:
        yield held.check


@contextlib.contextmanager
def _holding(folder: Path, me: Holder) -> Iterator[Check]:
    from filelock import FileLock, Timeout

    is_new = not folder.exists()
    with storage_errors(f"write {folder}", advice="choose a folder that you may write"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK, thread_local=False)
        try:
            lock.acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            holder = _read_holder(folder)
            named = "" if holder is UNKNOWN else f" ({holder})"
            raise OutputError(
                f"another run is writing {folder}{named}; wait for its end, or end it"
            ) from None
    try:
        with contextlib.suppress(OSError):  # it only helps to name this run
            (folder / _HOLDER).write_bytes(_HOLDERS.dump_json(me) + b"\n")
        yield lambda: None
    finally:
        with contextlib.suppress(OSError):
            (folder / _HOLDER).unlink()
        has_begun = (folder / MANIFEST).exists()
        with contextlib.suppress(OSError):
            if not (has_begun and (folder / FINISHED).exists()):
                (folder / _LOCK).unlink()
            if is_new and not has_begun:
                folder.rmdir()
        lock.release()


def find_holder(folder: Location) -> Holder | None:
    """The run that holds a folder now; None if none does.

    It asks the lock, which the system frees when a process ends, however it ends. It needs no
    permission to write, and leaves the folder as it is. A lock at an address is watched for some
    time.

    Raises:
      OutputError: the server of an address cannot be asked.
    """
    store = open_store(folder)
    if isinstance(store, ObjectStore):
        with storage_errors(f"read {folder}", advice="pass the folder that a run wrote"):
            return lease.watch(store, lease.RENEWAL_SECONDS)
    return _find_holder(local_path(folder))


def _find_holder(folder: Path) -> Holder | None:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _read_holder(folder) if _is_locked(folder, descriptor) else None
    finally:
        os.close(descriptor)


def is_seen(folder: Location) -> bool:
    """Whether this machine sees the folder that a run on some machine holds."""
    return not isinstance(folder, Path) or (folder / _LOCK).exists()


def _is_locked(folder: Path, descriptor: int) -> bool:
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # no such locks here: the last run may have been killed
        return (folder / _HOLDER).exists()
    return False


def _read_holder(folder: Path) -> Holder:
    try:
        return _HOLDERS.validate_json((folder / _HOLDER).read_bytes())
    except (OSError, ValidationError):
        return UNKNOWN
