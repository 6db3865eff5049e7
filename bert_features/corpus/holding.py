"""Who writes a folder: one run at a time, which holds its lock."""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bert_features.errors import OutputError
from bert_features.files import Location, local_path, storage_errors
from bert_features.formats.manifest import FINISHED, MANIFEST

_LOCK, _HOLDER = ".lock", ".running"
HOLDING_FILES = frozenset({_LOCK, _HOLDER})
# `find_holder` may have the lock for a moment.
_PATIENCE_SECONDS = 0.3


@dataclass(frozen=True)
class Holder:
    """A run that holds a folder.

    Attributes:
      process: the number of its process; None if unknown.
      machine: the name of its machine.
      processes: how many processes compute for it.
    """

    process: int | None
    machine: str
    processes: int = 1

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


_UNKNOWN = Holder(None, "an unknown machine")
_HOLDERS = TypeAdapter(Holder)


def holding(folder: Location, processes: int = 1) -> contextlib.AbstractContextManager[None]:
    """Makes the folder and keeps other runs out of it, until the block or this process ends.

    A run that ends before it has written its manifest leaves no folder that it made. The lock file
    stays while there is something to go on with: a run that waits for it must not lose it.

    Args:
      folder: the folder.
      processes: how many processes compute, for those who ask.

    Raises:
      OutputError: another run holds it, or it cannot be made.
    """
    me = Holder(os.getpid(), socket.gethostname(), processes)
    return _holding(local_path(folder), me)


@contextlib.contextmanager
def _holding(folder: Path, me: Holder) -> Iterator[None]:
    from filelock import FileLock, Timeout

    is_new = not folder.exists()
    with storage_errors(f"write {folder}", advice="choose a folder that you may write"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK, thread_local=False)
        try:
            lock.acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            holder = _read_holder(folder)
            named = "" if holder is _UNKNOWN else f" ({holder})"
            raise OutputError(
                f"another run is writing {folder}{named}; wait for its end, or end it"
            ) from None
    try:
        with contextlib.suppress(OSError):  # it only helps to name this run
            (folder / _HOLDER).write_bytes(_HOLDERS.dump_json(me) + b"\n")
        yield
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
    permission to write, and leaves the folder as it is.
    """
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
        return _UNKNOWN
