"""The folder that a run writes: whether one can begin there, who holds it, how one is removed.

One run at a time writes a folder of this machine, and holds its lock. A folder at an address has no
lock. Two runs that write it at the same time compute the same shards: that wastes time and harms
nothing, as the bytes of a shard are the same in both.
"""

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bert_features.corpus.inputs import WEB, name_some
from bert_features.errors import OutputError
from bert_features.files import (
    Location,
    Store,
    find_leftovers,
    open_store,
    remove_leftovers,
    storage_errors,
)
from bert_features.files.locks import is_locked, take_lock
from bert_features.formats import SUFFIXES
from bert_features.formats.manifest import (
    BEGINNING_BYTES,
    FINISHED,
    MANIFEST,
    Manifest,
    has_manifest,
    is_beginning,
)

_SHARD = re.compile(r"\.?part-(?P<shard>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[a-z0-9]+)(\..*)?")
_KEPT = "nothing was changed"
_LOCK, _HOLDER = ".lock", ".running"
HOLDING_FILES = frozenset({_LOCK, _HOLDER})
# `find_holder` may have the lock for a moment.
_PATIENCE_SECONDS = 0.3


def check_folder(folder: Location) -> None:
    """Refuses what is not a folder, or holds other files than a run's; raises OutputError."""
    if isinstance(folder, str) and folder.startswith(WEB):
        raise OutputError(
            f"{folder} is on a web server, where nothing can be written; pass a path, or an "
            "address of an object store such as s3://bucket/run/"
        )
    if isinstance(folder, Path):
        if not os.path.lexists(folder):
            return
        if not folder.is_dir():
            raise OutputError(
                f"{folder} is not a folder; name another, or a file without / at the end"
            )
    store = open_store(folder)
    with storage_errors(f"read {folder}", advice=_KEPT):
        names = store.names() - HOLDING_FILES
        # A run that was killed before it had a manifest may have left hidden folders beside it.
        others = sorted(name for name in names if not name.startswith(f".{MANIFEST}."))
        has_begun = has_manifest(folder)
    if others and not (has_begun and _is_ours(store, others)):
        raise OutputError(
            f"{folder} holds other files ({name_some(others)}); name a file in it, a "
            "new folder or an empty one"
        )


def _is_ours(store: Store, names: Iterable[str]) -> bool:
    """Whether the manifest is of this package; a damaged one is if only shards are beside it."""
    with storage_errors(f"read {store.location(MANIFEST)}", advice=_KEPT):
        text = store.read(MANIFEST)
    if is_beginning(text[:BEGINNING_BYTES]):
        return True
    with contextlib.suppress(ValueError):
        json.loads(text)
        return False
    known = {MANIFEST, FINISHED}
    return all(name in known or _is_shard(name) for name in names)


def _is_shard(name: str, count: int | None = None) -> bool:
    """Whether it is the name of a shard's file, sidecar or hidden folder; there may be `count`."""
    match = _SHARD.fullmatch(name)
    if match is None or match["suffix"] not in SUFFIXES:
        return False
    return count is None or (int(match["count"]) == count and int(match["shard"]) < count)


def is_tidy(folder: Location) -> bool:
    """Whether no run, killed or alive, has files of its own in a folder."""
    with storage_errors(f"read {folder}", advice=_KEPT):
        names = open_store(folder).names()
        return not (names & {FINISHED, *HOLDING_FILES} or _leftovers(folder))


def tidy(folder: Location) -> None:
    """Removes what runs left in a finished folder, which the caller holds; raises OutputError."""
    with storage_errors(f"tidy {folder}", advice="its shards and its manifest are whole"):
        for target in _leftovers(folder):
            remove_leftovers(target)
        open_store(folder).remove(FINISHED)


def _leftovers(folder: Location) -> list[Path]:
    """The shards and the manifest beside which there are hidden folders."""
    found = find_leftovers(folder) if isinstance(folder, Path) else set()
    return [path for path in found if path.name == MANIFEST or _is_shard(path.name)]


def empty(folder: Location) -> None:
    """Removes a run that has begun in a folder; raises OutputError.

    If this is interrupted, what is left counts as unfinished, and can be removed again.
    """
    store = open_store(folder)
    with storage_errors(f"remove the files of {folder}", advice="some of them may be gone"):
        if not has_manifest(folder):
            return
        store.remove(FINISHED)
        count = None
        with contextlib.suppress(OutputError):  # a damaged manifest counts as none finished
            manifest = Manifest.read(folder)
            count = len(manifest.shards)
            replace(manifest, finished=None).write()
        store.remove(*(name for name in store.names() if _is_shard(name, count)))
        store.remove(MANIFEST)


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
    with storage_errors(f"write {folder}", advice="choose a folder that you may write"):
        is_new = not folder.exists()
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
