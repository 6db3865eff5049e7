"""The folder that a run writes: whether one can begin there, and how another is removed."""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bert_features.corpus.holding import HOLDING_FILES
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
