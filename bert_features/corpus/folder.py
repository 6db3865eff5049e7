"""The folder that a run writes: whether one can begin there, who holds it, how one is removed.

One run at a time writes a folder of this machine, and holds its lock; of hosts that share a run
each holds the lock of its share. A folder at an address has no lock. Two runs that write it at the
same time compute the same shards: that wastes time and harms nothing, as the bytes of a shard are
the same in both.
"""

import contextlib
import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bert_features.config.shards import WHOLE, Shard
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
_HOLDING_FILE = re.compile(rf"({re.escape(_LOCK)}|{re.escape(_HOLDER)})(-\d{{5}}-of-\d{{5}})?")
# `find_holder` may have the lock for a moment.
_PATIENCE_SECONDS = 0.3
# Of this process: other disks may have a folder of the same path, with what runs have left.
MARK = secrets.token_hex(8)


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
        names = {name for name in store.names() if not _HOLDING_FILE.fullmatch(name)}
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
        held = any(map(_HOLDING_FILE.fullmatch, names))
        return not (held or FINISHED in names or _leftovers(folder))


def tidy(folder: Location) -> None:
    """Removes what runs left in a finished folder, which the caller holds; raises OutputError."""
    with storage_errors(f"tidy {folder}", advice="its shards and its manifest are whole"):
        for target in _leftovers(folder):
            remove_leftovers(target)
        store = open_store(folder)
        store.remove(FINISHED)
        # Of runs that have ended. A lock is removed by the one that holds it.
        others = [name for name in store.names() if _HOLDING_FILE.fullmatch(name)]
        held = {_share_of(lock) for lock in _locks_held(folder)}
        store.remove(*(name for name in others if _share_of(name) not in held))


def _leftovers(folder: Location) -> list[Path]:
    """The shards and the manifest beside which there are hidden folders."""
    leftovers = find_leftovers(folder) if isinstance(folder, Path) else set()
    return [path for path in leftovers if path.name == MANIFEST or _is_shard(path.name)]


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
      share: the share that it computes, as `1/4`; empty for the whole folder.
      mark: a text that no other process has.
    """

    process: int | None
    machine: str
    processes: int = 1
    share: str = ""
    mark: str = field(default="", compare=False)

    def __str__(self) -> str:
        share = f", share {self.share}" if self.share else ""
        return f"process {self.process} on {self.machine}{share}"


UNKNOWN = Holder(None, "an unknown machine")
_HOLDERS = TypeAdapter(Holder)


@contextlib.contextmanager
def holding(folder: Location, processes: int = 1, share: Shard = WHOLE) -> Iterator[None]:
    """Makes the folder and keeps other runs out of it, until the block or this process ends.

    Of the runs of one share one may hold it, and none together with the run of the whole folder.
    A run that ends before it has written its manifest leaves no folder that it made. The lock file
    stays while there is something to resume: a run that waits for it must not lose it. At an
    address the run only leaves its name, which shows at once that it may write there. `processes`
    is for those who ask.

    Raises:
      OutputError: another run holds it, or it cannot be made.
    """
    named = str(share) if share.count > 1 else ""
    me = Holder(os.getpid(), socket.gethostname(), processes, named, MARK)
    own_lock, own_holder = (share.path(name).name for name in (_LOCK, _HOLDER))
    if isinstance(folder, str):
        store = open_store(folder)
        store.write(own_holder, _describe(me))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                store.remove(own_holder)
        return
    with storage_errors(f"write {folder}", advice="choose a folder that you may write"):
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder / own_lock, seconds=_PATIENCE_SECONDS)
    if lock is None:
        raise _held(folder, own_lock)
    try:
        for name in _locks_held(folder):
            # Shares are held beside each other, the whole folder alone.
            if name != own_lock and (name == _LOCK or share.count == 1):
                raise _held(folder, name)
        with contextlib.suppress(OSError):  # it only helps to name this run
            (folder / own_holder).unlink(missing_ok=True)
            with (folder / own_holder).open("x") as file:  # never through a link
                file.write(_describe(me))
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / own_holder).unlink()
        has_begun = has_manifest(folder)
        with contextlib.suppress(OSError):
            if not (has_begun and (folder / FINISHED).exists()):
                (folder / own_lock).unlink()
            if is_new and not has_begun:
                folder.rmdir()
        lock.release()


def _held(folder: Path, lock: str) -> OutputError:
    """The error of a folder whose lock another run holds, or seems to hold."""
    holder = _read_holder(folder, lock)
    if holder is UNKNOWN:
        return OutputError(f"another run is writing {folder}; wait until it ends, or stop it")
    gone = ""
    if holder.machine != socket.gethostname():
        gone = f"; if that machine is gone, remove {folder / lock} and run this again"
    return OutputError(
        f"another run is writing {folder} ({holder}); wait until it ends, or stop it{gone}"
    )


def _locks_held(folder: Location) -> list[str]:
    """The names of the locks of a folder that runs hold now; none at an address."""
    if isinstance(folder, str):
        return []
    with storage_errors(f"read {folder}", advice=_KEPT):
        names = sorted(name for name in open_store(folder).names() if name.startswith(_LOCK))
        return [n for n in names if _HOLDING_FILE.fullmatch(n) and _is_held(folder, n)]


def _is_held(folder: Path, lock: str) -> bool:
    held = is_locked(folder / lock)
    if held is None:  # there are no locks here; the last run may have been killed
        held = (folder / lock.replace(_LOCK, _HOLDER, 1)).exists()
    return held


def _share_of(name: str) -> str:
    """What tells the lock and the holder of one share from those of others."""
    return name.partition("-")[2]


def find_holders(folder: Location) -> tuple[Holder, ...]:
    """The runs that hold a folder now; none if it is at an address.

    It asks the locks, needs no permission to write, and leaves the folder as it is.
    """
    if isinstance(folder, str) or not folder.is_dir():
        return ()
    return tuple(_read_holder(folder, lock) for lock in _locks_held(folder))


def is_seen(folder: Location, mark: str) -> bool:
    """Whether this machine sees the folder that the process of a mark holds, on some machine."""
    if not isinstance(folder, Path):
        return True
    return any(_read_holder(folder, path.name).mark == mark for path in folder.glob(f"{_HOLDER}*"))


def _describe(holder: Holder) -> str:
    return _HOLDERS.dump_json(holder).decode() + "\n"


def _read_holder(folder: Path, lock: str) -> Holder:
    try:
        return _HOLDERS.validate_json(open_store(folder).read(lock.replace(_LOCK, _HOLDER, 1)))
    except (OSError, ValidationError):
        return UNKNOWN
