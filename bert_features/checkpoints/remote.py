"""Checkpoints on object stores: the files that a checkpoint needs, copied into the cache once.

The cache holds, for the address of a checkpoint:
  remote/HASH/NAME/    the files, and in `.source.json` which version of each was copied
  remote/HASH.lock     held by the one process that copies; empty
A copy is used as long as the store still has the same versions of the same files.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bert_features import files
from bert_features.checkpoints import locate
from bert_features.checkpoints.sentence_transformers import (
    MAIN_CONFIG,
    MODULES,
    TRANSFORMER_CONFIG,
    transformer_path,
)
from bert_features.checkpoints.weight_readers import INDEX_SUFFIX, weight_map_in
from bert_features.config.json_files import parse_json, read_json_object
from bert_features.errors import CheckpointError
from bert_features.files import IN_CACHE, cache_dir, locked, replacing

logger = logging.getLogger("bert_features")

# Files that are copied with the weights, from the root or from the assets of a SavedModel.
_CONFIG = "config.json"
_BESIDE_WEIGHTS = (
    _CONFIG,
    "bert_config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    MODULES,
    MAIN_CONFIG,
    TRANSFORMER_CONFIG,
)
# The folder of a module of sentence-transformers: 0_Transformer, 1_Pooling.
_MODULE = re.compile(r"\d+_\w+/")
_ROOT_FOLDERS = ("", "assets/")
_SOURCE = ".source.json"
# Keys under which drivers report the version of a file.
_VERSION_KEYS = ("etag", "ETag", "generation", "mtime", "LastModified", "updated", "created")


def fetch(url: str) -> Path:
    """Copies a checkpoint into the cache, if the copy there is not the same.

    Args:
      url: the address of a directory, of a file, or of the prefix of a TensorFlow checkpoint.

    Returns:
      The local path of the weights, as `locate.locate` takes it.

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
    folder, weights = _find(url)
    copy = folder.copied(folder.files_of(weights))
    # Weights in a folder of sentence-transformers are found by its modules.json.
    return copy if _MODULE.match(weights) else copy / weights


def fetch_file(url: str) -> Path:
    """Copies one file into the cache, if the copy there is not the same.

    Raises:
      CheckpointError, ConfigError, MissingExtraError: see `fetch`.
    """
    filesystem, path = files.connect(url, CheckpointError)
    with files.remote_errors(url, CheckpointError):
        is_file = filesystem.info(path)["type"] == "file"
    if not is_file:
        raise CheckpointError(f"{url} is a directory; pass a file")
    parent, _, name = path.rpartition("/")
    return _Folder(url, filesystem, parent, (name,)).copied([name]) / name


@dataclass(frozen=True)
class _Folder:
    """A folder of an object store.

    Attributes:
      url: what the user asked for.
      filesystem: the fsspec file system.
      path: the folder's path in it.
      names: its files, and for a SavedModel those of `variables` and `assets`.
    """

    url: str
    filesystem: Any
    path: str
    names: tuple[str, ...]

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        with files.remote_errors(f"{self.url} ({name})", CheckpointError):
            content: bytes = self.filesystem.cat_file(f"{self.path}/{name}")
            return content

    def files_of(self, weights: str) -> list[str]:
        """The files that a checkpoint consists of.

        Args:
          weights: what `locate.choose_weights` chose.
        """
        inner, _, _ = weights.rpartition("/")
        folders = (*_ROOT_FOLDERS, f"{inner}/") if _MODULE.match(weights) else _ROOT_FOLDERS
        beside = [f"{folder}{name}" for folder in folders for name in _BESIDE_WEIGHTS]
        beside += [name for name in self.names if _MODULE.match(name) and name.endswith(_CONFIG)]
        wanted = {locate.SAVED_MODEL, *beside} if weights == locate.VARIABLES else {*beside}
        if weights.endswith(INDEX_SUFFIX):
            wanted |= {weights, *(f"{inner}/{s}".lstrip("/") for s in self._shards(weights))}
        elif weights.endswith(".safetensors"):
            wanted.add(weights)
        else:
            wanted |= {f"{weights}.index"}
            wanted |= {name for name in self.names if name.startswith(f"{weights}.data-")}
        return [name for name in self.names if name in wanted]

    def _shards(self, index: str) -> Iterable[str]:
        values = parse_json(self.read(index), f"{self.url}: {index}")
        return weight_map_in(values if isinstance(values, dict) else {}, index).values()

    def copied(self, names: list[str]) -> Path:
        """The folder in the cache that holds these files, as they are on the store now."""
        parent = cache_dir() / "remote" / hashlib.sha256(self.url.encode()).hexdigest()[:16]
        # Under its own name, which may show the casing.
        to = parent / (PurePosixPath(self.path).name or "root")
        waiting = f"{self.url}: waiting for another process that copies it"
        with (
            files.storage_errors(f"write the cache {cache_dir()}", **IN_CACHE),
            locked(parent.with_suffix(".lock"), waiting),
        ):
            parent.mkdir(exist_ok=True)
            versions = self._versions(names)
            if not _is_copied(to, versions):
                self._copy(versions, to)
        return to

    def _versions(self, names: list[str]) -> dict[str, list[Any]]:
        """File -> size in bytes, None if the store does not report it, and version."""
        with files.remote_errors(self.url, CheckpointError):
            paths = {name: f"{self.path}/{name}" for name in names}
            infos = {name: self.filesystem.info(path) for name, path in paths.items()}
            return {
                name: [info.get("size"), _version(info) or self.filesystem.ukey(paths[name])]
                for name, info in infos.items()
            }

    def _copy(self, versions: dict[str, list[Any]], to: Path) -> None:
        total = sum(size or 0 for size, _ in versions.values())
        logger.info("copying %s (%s MB) to %s", self.url, f"{total / 1e6:,.1f}", to)
        with replacing(to, overwrite=True, folder=True, **IN_CACHE) as folder:
            folder.mkdir()
            for name, (size, _) in versions.items():
                local = folder / name
                local.parent.mkdir(parents=True, exist_ok=True)
                with files.remote_errors(f"{self.url} ({name})", CheckpointError):
                    self.filesystem.get_file(f"{self.path}/{name}", str(local))
                received = local.stat().st_size
                if size not in (None, received):
                    raise CheckpointError(
                        f"{self.url}: received {received} of {size} bytes of {name}; try again"
                    )
            (folder / _SOURCE).write_text(json.dumps(versions))


def _find(url: str) -> tuple[_Folder, str]:
    """The folder of a checkpoint, and its weights as `locate.choose_weights` names them."""
    filesystem, path = files.connect(url, CheckpointError)
    path = path.rstrip("/")
    with files.remote_errors(url, CheckpointError):
        parent, _, wanted = path.rpartition("/")
        if wanted == locate.SAVED_MODEL or _is_folder(filesystem, path):
            parent, wanted = (parent, "") if wanted == locate.SAVED_MODEL else (path, "")
        names = _list(filesystem, parent)
    folder = _Folder(url, filesystem, parent, tuple(names))
    return folder, _weights_at(folder, wanted) if wanted else _weights_in(folder)


def _weights_at(folder: _Folder, wanted: str) -> str:
    if wanted in folder.names and wanted.endswith((".safetensors", INDEX_SUFFIX)):
        return wanted
    prefix = locate.prefix_of(wanted)
    if f"{prefix}.index" in folder.names:
        return prefix
    if wanted in folder.names and wanted.endswith(locate.PICKLES):
        raise CheckpointError(locate.pickle_message(folder.url))
    raise CheckpointError(
        f"there is no checkpoint at {folder.url}; pass the address of a directory, of a "
        ".safetensors file, or the prefix of a TensorFlow checkpoint"
    )


def _weights_in(folder: _Folder) -> str:
    inner = ""
    if MODULES in folder.names:
        source = f"{folder.url}/{MODULES}"
        inner = transformer_path(parse_json(folder.read(MODULES), source), source)
    start = f"{inner}/" if inner else ""
    names = [
        name.removeprefix(start)
        for name in folder.names
        if name.startswith(start) and (start or not _MODULE.match(name))
    ]
    latest = None
    if locate.STATE_FILE in names:
        state = folder.read(f"{start}{locate.STATE_FILE}")
        latest = locate.latest_in(state.decode("utf-8", "replace"))
    weights = locate.choose_weights(names, folder.url, latest)
    if weights is not None:
        return f"{start}{weights}"
    for name in folder.names:
        if name.endswith(locate.PICKLES):
            raise CheckpointError(locate.pickle_message(f"{folder.url}/{name}"))
    raise locate.no_weights(folder.url)


def _list(filesystem: Any, path: str) -> list[str]:
    """The files of a folder, sorted; those of a SavedModel's and of modules' with their folders."""
    names = _files(filesystem, path)
    if MODULES in names:
        for folder in _module_folders(filesystem, path):
            names += [f"{folder}/{name}" for name in _files(filesystem, f"{path}/{folder}")]
    if locate.SAVED_MODEL in names:
        for folder in ("variables", "assets"):
            if _is_folder(filesystem, f"{path}/{folder}"):
                inner = _files(filesystem, f"{path}/{folder}")
                names += [f"{folder}/{name}" for name in inner]
    return names


def _is_folder(filesystem: Any, path: str) -> bool:
    # Not isdir(): it takes a lack of permission for a file that is not there.
    try:
        is_folder: bool = filesystem.info(path)["type"] == "directory"
    except FileNotFoundError:
        return False
    return is_folder


def _module_folders(filesystem: Any, path: str) -> list[str]:
    entries = filesystem.ls(path, detail=True)
    names = [PurePosixPath(e["name"].rstrip("/")).name for e in entries if e["type"] == "directory"]
    return sorted(name for name in names if _MODULE.match(f"{name}/"))


def _files(filesystem: Any, path: str) -> list[str]:
    entries = filesystem.ls(path, detail=True)
    return sorted(PurePosixPath(e["name"]).name for e in entries if e["type"] == "file")


def _version(info: dict[str, Any]) -> str:
    return " ".join(str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None)


def _is_copied(folder: Path, versions: dict[str, list[Any]]) -> bool:
    """Whether a folder of the cache holds these versions of the files, whole."""
    try:
        sizes = {name: (folder / name).stat().st_size for name in versions}
        same = read_json_object(folder / _SOURCE) == versions
    except (OSError, CheckpointError):
        return False
    return same and all(size in (None, sizes[name]) for name, (size, _) in versions.items())
