"""Who writes a folder of this machine: one run at a time, which holds its lock.

A folder at an address has no lock. Two runs that write it at the same time compute the same shards:
that wastes time and harms nothing, as the bytes of a shard are the same in both.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bert_features.errors import OutputError
from bert_features.files import Location, open_store, storage_errors
from bert_features.files.locks import is_locked, take_lock
from bert_features.formats.manifest import FINISHED, has_manifest

_LOCK, _HOLDER = ".lock", ".running"
HOLDING_FILES = frozenset({_LOCK, _HOLDER})
# `find_holder` may have the lock for a moment.
_PATIENCE_SECONDS = 0.3


@dataclass(frozen=True)
class Holder:
    """A run that holds a folder.

    Attributes:
      process: the number of its process; None if unknown.
      processes: how many processes compute for it; 0 if that is not known.
    """

    process: int | None
    machine: str
    processes: int = 1

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


UNKNOWN = Holder(None, "an unknown machine")
_HOLDERS = TypeAdapter(Holder)


@contextlib.contextmanager
def holding(folder: Location, processes: int = 1) -> Iterator[None]:
    """Makes the folder and keeps other runs out of it, until the block or this process ends.

    A run that ends before it has written its manifest leaves no folder that it made. The lock file
    stays while there is something to resume: a run that waits for it must not lose it. At an
    address the run only leaves its name, which shows at once that it may write there. `processes`
    is for those who ask.

    Raises:
      OutputError: another run holds it, or it cannot be made.
    """
    me = Holder(os.getpid(), socket.gethostname(), processes)
    if isinstance(folder, str):
        store = open_store(folder)
        store.write(_HOLDER, _describe(me))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                store.remove(_HOLDER)
        return
    is_new = not folder.exists()
    with storage_errors(f"write {folder}", advice="choose a folder that you may write"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder / _LOCK, seconds=_PATIENCE_SECONDS)
    if lock is None:
        holder = _read_holder(folder)
        named = "" if holder is UNKNOWN else f" ({holder})"
        raise OutputError(f"another run is writing {folder}{named}; wait until it ends, or stop it")
    try:
        with contextlib.suppress(OSError):  # it only helps to name this run
            (folder / _HOLDER).unlink(missing_ok=True)
            with (folder / _HOLDER).open("x") as file:  # never through a link
                file.write(_describe(me))
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / _HOLDER).unlink()
        has_begun = has_manifest(folder)
        with contextlib.suppress(OSError):
            if not (has_begun and (folder / FINISHED).exists()):
                (folder / _LOCK).unlink()
            if is_new and not has_begun:
                folder.rmdir()
        lock.release()


def find_holder(folder: Location) -> Holder | None:
    """The run that holds a folder now; None if none does, or if it is at an address.

    It asks the lock, needs no permission to write, and leaves the folder as it is.
    """
    if isinstance(folder, str):
        return None
    held = is_locked(folder / _LOCK)
    if held is None:  # there are no locks here; the last run may have been killed
        held = (folder / _HOLDER).exists()
    return _read_holder(folder) if held else None


def is_seen(folder: Location) -> bool:
    """Whether this machine sees the folder that a run on some machine holds."""
    return not isinstance(folder, Path) or (folder / _LOCK).exists()


def _describe(holder: Holder) -> str:
    return _HOLDERS.dump_json(holder).decode() + "\n"


def _read_holder(folder: Path) -> Holder:
    try:
        return _HOLDERS.validate_json(open_store(folder).read(_HOLDER))
    except (OSError, ValidationError):
        return UNKNOWN
