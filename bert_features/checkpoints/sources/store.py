"""Checkpoints on object stores: the files that a checkpoint needs, copied into the cache once.

The cache holds, for the address of a checkpoint:
  remote/HASH/NAME/    the files, and in `.source.json` which version of each was copied
  remote/HASH.lock     held by the one process that copies; empty
A copy is used as long as the store still has the same versions of the same files. (fsspec's own
`filecache` has no lock, and takes a file that was cut on its way for a whole one.)
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from bert_features import files
from bert_features.checkpoints.modules.sentence_transformers import path_of_transformer
from bert_features.checkpoints.modules.settings import read_modules
from bert_features.checkpoints.weights import locate, other_files
from bert_features.checkpoints.weights.file_names import (
    BESIDE_WEIGHTS,
    MAIN_CONFIG,
    MODULES,
    SAVED_MODEL,
    VARIABLES,
    is_index,
    is_weights_file,
)
from bert_features.checkpoints.weights.weight_readers import (
    weight_map_in,
)
from bert_features.config.json_files import parse_json, read_json_object
from bert_features.errors import CheckpointError
from bert_features.files import IN_CACHE, cache_dir, locked, replacing

logger = logging.getLogger("bert_features")

# Files that are copied with the weights, from any folder of the checkpoint.
_BESIDE_WEIGHTS = (*BESIDE_WEIGHTS, MODULES, MAIN_CONFIG)
# The folders of a checkpoint: of a SavedModel, and of modules of sentence-transformers (1_Pooling).
_INNER = re.compile(r"variables|assets|\d+_\w+")
_SOURCE = ".source.json"
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
    folder, wanted = path.rstrip("/"), ""
    with files.remote_errors(url, CheckpointError):
        if not _is_folder(filesystem, folder):
            folder, _, wanted = folder.rpartition("/")
        entries = dict(sorted(_entries(filesystem, folder)))

    def read(name: str) -> bytes:
        """The content of a small file."""
        with files.remote_errors(f"{url} ({name})", CheckpointError):
            content: bytes = filesystem.cat_file(f"{folder}/{name}")
            return content

    if wanted in ("", SAVED_MODEL):
        weights, wanted = _weights_in([*entries], url, read), ""
    else:
        weights = wanted = _weights_at([*entries], wanted, url)
    parts = {name: entries[name] for name in _parts_of(weights, [*entries], url, read)}
    return _copied(url, filesystem, folder, parts) / wanted


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
        name = PurePosixPath(entry["name"]).name
        if entry["type"] == "file":
            yield f"{inner}{name}", entry
        elif not inner and _INNER.fullmatch(name):
            yield from _entries(filesystem, folder, f"{name}/")


def _weights_at(names: Sequence[str], wanted: str, url: str) -> str:
    """The weights that an address of a file or a prefix means, see `locate.choose_weights`."""
    if wanted in names and is_weights_file(wanted):
        return wanted
    prefix = locate.prefix_of(wanted)
    if f"{prefix}.index" in names:
        return prefix
    folder = url.rstrip("/").rpartition("/")[0]
    raise (other_files.refusal([wanted], folder) if wanted in names else None) or CheckpointError(
        f"there is no checkpoint at {url}; pass the address of a directory, of a "
        ".safetensors file or pytorch_model.bin, or the prefix of a TensorFlow checkpoint"
    )


def _weights_in(names: Sequence[str], url: str, read: Callable[[str], bytes]) -> str:
    """The weights of a folder, or of the folder in it that sentence-transformers names."""
    inner = ""
    if MODULES in names:
        source = f"{url}/{MODULES}"
        inner = path_of_transformer(read_modules(parse_json(read(MODULES), source), source))
    start = f"{inner}/" if inner else ""
    there = [name.removeprefix(start) for name in names if name.startswith(start)]
    there = [name for name in there if "/" not in name or name == f"{VARIABLES}.index"]
    return start + locate.choose_weights(there, url, lambda name: read(f"{start}{name}"))


def _parts_of(
    weights: str, names: Sequence[str], url: str, read: Callable[[str], bytes]
) -> list[str]:
    """The names of the files that make up the `weights` that `locate.choose_weights` chose.

    `read` gives the content of one of `names`, the files that there are at `url`.
    """
    wanted = {weights, f"{weights}.index"}
    if weights == VARIABLES:
        wanted.add(SAVED_MODEL)
    if is_index(weights):
        values = parse_json(read(weights), f"{url}: {weights}")
        shards = weight_map_in(values if isinstance(values, dict) else {}, weights).values()
        wanted |= {str(PurePosixPath(weights).with_name(shard)) for shard in shards}
    return [
        name
        for name in names
        if name in wanted
        or name.startswith(f"{weights}.data-")
        or PurePosixPath(name).name in _BESIDE_WEIGHTS
        or _is_of_dense(name, names)
    ]


def _is_of_dense(name: str, names: Sequence[str]) -> bool:
    """Whether a file holds the weights of a module Dense: safetensors, else its pickle."""
    folder, _, file = name.rpartition("/")
    stored = f"{folder}/model.safetensors"
    wanted = "model.safetensors" if stored in names else "pytorch_model.bin"
    return folder.endswith("_Dense") and file == wanted


def _copied(url: str, filesystem: Any, folder: str, entries: Mapping[str, Entry]) -> Path:
    """The folder in the cache that holds these files, as they are on the store now."""
    parent = cache_dir() / "remote" / hashlib.sha256(url.encode()).hexdigest()[:16]
    # Under its own name, which may show the casing.
    to = parent / (PurePosixPath(folder).name or "root")
    waiting = f"{url}: waiting for another process that copies it"
    with (
        files.storage_errors(f"write the cache {cache_dir()}", **IN_CACHE),
        locked(parent.with_suffix(".lock"), waiting),
    ):
        parent.mkdir(exist_ok=True)
        versions = {name: _version(entry) for name, entry in entries.items()}
        if not _is_copied(to, versions):
            _copy(url, filesystem, folder, versions, to)
    return to


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
        for name, (size, _) in versions.items():
            local = new / name
            local.parent.mkdir(parents=True, exist_ok=True)
            with files.remote_errors(f"{url} ({name})", CheckpointError):
                filesystem.get_file(f"{folder}/{name}", str(local))
            if size not in (None, local.stat().st_size):
                raise CheckpointError(
                    f"{url}: received {local.stat().st_size} of {size} bytes of {name}; try again"
                )
        (new / _SOURCE).write_text(json.dumps(versions))


def _is_copied(folder: Path, versions: Mapping[str, list[Any]]) -> bool:
    """Whether a folder of the cache holds these versions of the files, whole."""
    try:
        sizes = {name: (folder / name).stat().st_size for name in versions}
        same = read_json_object(folder / _SOURCE) == versions
    except (OSError, CheckpointError):
        return False
    return same and all(size in (None, sizes[name]) for name, (size, _) in versions.items())
