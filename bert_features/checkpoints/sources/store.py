"""Checkpoints on object stores: the files that a checkpoint can have, copied into the cache once.

The cache holds, for the address of a folder or a file:
  remote/HASH/VERSION/NAME/    the files; VERSION is a hash of their names, sizes and versions
  remote/HASH.lock             held by the one process that copies; empty
A copy appears whole or not at all, and is used as long as the store lists the same files.
"""

import hashlib
import json
import logging
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_features import files
from bert_features.checkpoints.weights import other_files
from bert_features.checkpoints.weights.file_names import (
    BESIDE_WEIGHTS,
    MAIN_CONFIG,
    MODULES,
    ROUTER_CONFIG,
    SAVED_MODEL,
    STATE_FILE,
    TABLE_WEIGHTS,
    is_index,
    is_weights_file,
)
from bert_features.checkpoints.weights.locate import prefix_of
from bert_features.errors import CheckpointError
from bert_features.files import IN_CACHE, cache_dir, locked, replacing

logger = logging.getLogger("bert_features")

# The folders of a checkpoint: of a SavedModel, and of modules of sentence-transformers (1_Pooling).
_INNER = re.compile(r"variables|assets|(\w+_)?\d+_\w+")
_BESIDE_WEIGHTS = {
    *(*BESIDE_WEIGHTS, MODULES, MAIN_CONFIG, ROUTER_CONFIG, *TABLE_WEIGHTS),
    *(SAVED_MODEL, STATE_FILE),
}
_PICKLE = re.compile(r"pytorch_model.*\.bin(\.index\.json)?")
_WEIGHTS = re.compile(
    rf".+\.(safetensors(\.index\.json)?|index|data-\d{{5}}-of-\d{{5}})|{_PICKLE.pattern}"
)
# Keys under which drivers report the version of a file.
_VERSION_KEYS = ("etag", "ETag", "generation", "mtime", "LastModified", "updated", "created")
# What a driver reports of a file.
Entry = Mapping[str, Any]


def fetch(url: str) -> Path:
    """Copies a checkpoint into the cache, if the copy there is not the same.

    The address is that of a directory, of a file, or of the prefix of a TensorFlow checkpoint; the
    result is the local path of the same, as `locate.locate` takes it.

    Raises:
      CheckpointError: there is no checkpoint, it cannot be read, or the cache cannot be written.
      ConfigError: the scheme is unknown.
      MissingExtraError: the driver of the scheme is not installed.
    """
    if url.startswith(("http://", "https://")):
        raise CheckpointError(
            f"{url} is not a checkpoint; allowed web addresses: https://tfhub.dev/…, "
            "https://www.kaggle.com/models/…, and an archive (.tar.gz) of a SavedModel"
        )
    filesystem, path = files.connect(url, CheckpointError)
    folder, file = path.rstrip("/"), ""
    with files.remote_errors(url, CheckpointError):
        if not _is_folder(filesystem, folder):
            folder, _, file = folder.rpartition("/")
        entries = dict(sorted(_entries(filesystem, folder)))
    file = "" if file == SAVED_MODEL else file
    parts = [name for name in entries if _is_part(name, file)]
    bases = {name: posixpath.basename(name) for name in parts}
    weights = {n for n, base in bases.items() if _WEIGHTS.fullmatch(base) or is_weights_file(base)}
    if not (weights & {file, f"{prefix_of(file)}.index"} if file else weights):
        parent = url.rstrip("/").removesuffix(f"/{file}")
        raise other_files.refusal(
            [n for n in entries if file in ("", n)], parent
        ) or CheckpointError(
            f"there is no checkpoint at {url}; pass the address of a directory with weights, of a "
            ".safetensors file or pytorch_model.bin, or the prefix of a TensorFlow checkpoint"
        )
    safe = {posixpath.dirname(name) for name in parts if name.endswith(".safetensors")}
    needed = [
        n
        for n in parts
        if posixpath.dirname(n) not in safe or not _PICKLE.fullmatch(posixpath.basename(n))
    ]
    return _copied(url, filesystem, folder, {name: entries[name] for name in needed}) / file


def fetch_file(url: str) -> Path:
    """Copies one file into the cache, if the copy there is not the same; errors as `fetch`."""
    filesystem, path = files.connect(url, CheckpointError)
    with files.remote_errors(url, CheckpointError):
        entry = filesystem.info(path)
    if entry["type"] != "file":
        raise CheckpointError(f"{url} is a directory; pass a file")
    folder, _, name = path.rpartition("/")
    return _copied(url, filesystem, folder, {name: entry}) / name


def _is_folder(filesystem: Any, path: str) -> bool:
    # Not isdir(): it takes a lack of permission for a file that is not there.
    try:
        is_folder: bool = filesystem.info(path)["type"] == "directory"
    except FileNotFoundError:
        return False
    return is_folder


def _entries(filesystem: Any, folder: str, inner: str = "") -> Iterator[tuple[str, Entry]]:
    """The files of a folder, and `variables/NAME` of each folder that a checkpoint can have."""
    for entry in filesystem.ls(f"{folder}/{inner}".rstrip("/"), detail=True):
        name = posixpath.basename(entry["name"].rstrip("/"))
        if entry["type"] == "file":
            yield f"{inner}{name}", entry
        elif not inner and _INNER.fullmatch(name):
            yield from _entries(filesystem, folder, f"{name}/")


def _is_part(name: str, file: str) -> bool:
    """Whether a checkpoint can have a file; of weights beside `file`, those of its prefix alone."""
    base = posixpath.basename(name)
    if name == file or not _WEIGHTS.fullmatch(base):
        return name == file or base in _BESIDE_WEIGHTS
    return "/" in name or not file or is_index(file) or prefix_of(name) == prefix_of(file)


def _copied(url: str, filesystem: Any, folder: str, entries: Mapping[str, Entry]) -> Path:
    """The folder in the cache that holds these files, as they are on the store now."""
    versions = {name: _version(entry) for name, entry in entries.items()}
    parent = cache_dir() / "remote" / _hash(url)
    # Under its own name, which may show the casing.
    to = parent / _hash(json.dumps(versions)) / (posixpath.basename(folder) or "root")
    waiting = f"{url}: waiting for another process that copies it"
    with (
        files.storage_errors(f"write the cache {cache_dir()}", **IN_CACHE),
        locked(parent.with_suffix(".lock"), waiting),
    ):
        if not to.is_dir():
            to.parent.mkdir(parents=True, exist_ok=True)
            _copy(url, filesystem, folder, versions, to)
            for other in parent.iterdir():  # what the store had before
                if other != to.parent:
                    shutil.rmtree(other, ignore_errors=True)
    return to


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _version(entry: Entry) -> list[Any]:
    """Size in bytes, None if the store does not report it, and version of a file."""
    stated = (entry[key] for key in _VERSION_KEYS if entry.get(key) is not None)
    return [entry.get("size"), " ".join(map(str, stated)) or str(entry)]


def _copy(
    url: str, filesystem: Any, folder: str, versions: Mapping[str, list[Any]], to: Path
) -> None:
    total = sum(size or 0 for size, _ in versions.values())
    logger.info("copying %s (%s MB) to %s", url, f"{total / 1e6:,.1f}", to)
    with replacing(to, overwrite=True, folder=True, **IN_CACHE) as new:
        for name in versions:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
        with files.remote_errors(url, CheckpointError):
            paths = [f"{folder}/{name}" for name in versions]
            filesystem.get(paths, [str(new / name) for name in versions])
        for name, (size, _) in versions.items():
            received = (new / name).stat().st_size
            if size not in (None, received):
                raise CheckpointError(
                    f"{url}: received {received} of {size} bytes of {name}; try again"
                )
