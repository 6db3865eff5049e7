"""The folder that a run writes: checked before, held while it runs, tidied at its end."""

import contextlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bert_features.errors import OutputError
from bert_features.files import Role, is_url, local_path, storage_errors
from bert_features.formats.manifest import FINISHED, MANIFEST, FinishedEntry, Manifest

_LOCK, _HOLDER = ".lock", ".running"
_SHARD = re.compile(r"\.?part-\d{5}-of-\d{5}\..*")
_MOST_NAMED = 3


def check_folder(folder: Path) -> None:
    """Refuses a folder in which no run can begin or go on.

    Raises:
      OutputError: it is not a folder, or holds other files.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder; name another, or a file without / at the end")
    with storage_errors(f"read {folder}"):
        others = sorted({path.name for path in folder.iterdir()} - {_LOCK, _HOLDER})
    if others and MANIFEST not in others:
        more = ", …" if len(others) > _MOST_NAMED else ""
        raise OutputError(
            f"{folder} holds files of something else ({', '.join(others[:_MOST_NAMED])}{more}); "
            "name a file in it, a new folder or an empty one"
        )


def check_apart(read: Iterable[Role], folder: Path) -> None:
    """Refuses a folder that holds a file that the run reads.

    Raises:
      OutputError: there is such a file.
    """
    within = folder.resolve()
    for role, path in read:
        if isinstance(path, int) or is_url(path):
            continue
        if within in local_path(path).resolve().parents:
            raise OutputError(f"{role}, {path}, is in the output folder {folder}; name another")


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps other runs out of it, until the block or this process ends.

    A run that ends before it has written its manifest leaves no folder that it made. The lock file
    stays while there is something to go on with: a run that waits for it must not lose it.

    Raises:
      OutputError: another run holds it, or it cannot be made.
    """
    from filelock import FileLock, Timeout

    with storage_errors(f"write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise OutputError(
                f"another run is writing {folder}{_holder(folder)}; wait for its end, or end it"
            ) from None
    try:
        me = {"process": os.getpid(), "machine": socket.gethostname()}
        with contextlib.suppress(OSError):  # it only helps to name this run
            (folder / _HOLDER).write_text(json.dumps(me) + "\n", encoding="utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / _HOLDER).unlink()
        has_begun = (folder / MANIFEST).exists()
        with contextlib.suppress(OSError):
            if not (has_begun and (folder / FINISHED).exists()):
                (folder / _LOCK).unlink()
            if not has_begun:
                folder.rmdir()  # fails if it is not empty: then this run has not made it
        lock.release()


def _holder(folder: Path) -> str:
    try:
        holder = json.loads((folder / _HOLDER).read_text(encoding="utf-8"))
        return f" (process {holder['process']} on {holder['machine']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def empty(folder: Path) -> None:
    """Removes a run that has begun in a folder.

    If this is interrupted, what is left counts as unfinished, and can be removed again.

    Raises:
      OutputError: the disk failed.
    """
    if not (folder / MANIFEST).exists():
        return
    with storage_errors(f"remove the files of {folder}"):
        shutil.rmtree(folder / FINISHED, ignore_errors=True)
        with contextlib.suppress(OutputError):  # a damaged manifest counts as none finished
            replace(Manifest.read(folder), finished=None).write()
        for path in folder.iterdir():
            if _SHARD.fullmatch(path.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / MANIFEST).unlink()


def conclude(manifest: Manifest, done: Mapping[int, FinishedEntry]) -> None:
    """Records that all shards are finished.

    Raises:
      OutputError: the disk failed.
    """
    folder = manifest.folder
    finished = tuple(done[shard] for shard in range(len(manifest.shards)))
    replace(Manifest.read(folder), finished=finished).write()
    with storage_errors(f"write {folder}"):
        shutil.rmtree(folder / FINISHED)
