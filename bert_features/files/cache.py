"""The cache: its place, and bytes kept in it that take long to compute, checked by their hash."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from bert_features.errors import BertFeaturesError, CheckpointError
from bert_features.files.addresses import local_path
from bert_features.files.reporting import Reporting
from bert_features.files.staging import replacing

logger = logging.getLogger("bert_features")

CACHE_VARIABLE = "BERT_FEATURES_CACHE"
IN_CACHE: Reporting = {
    "error": CheckpointError,
    "advice": f"set {CACHE_VARIABLE} to a folder that has room and that you may write",
}
_HASH_BYTES = hashlib.sha256().digest_size


def cache_dir() -> Path:
    """The folder for downloads and compiled code: $BERT_FEATURES_CACHE, or the platform's."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return local_path(Path(chosen).expanduser())
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))


def from_cache(folder: str, sources: Iterable[bytes], compute: Callable[[], bytes]) -> bytes:
    """The bytes that `compute` gives: from the cache if they are there, else computed and kept.

    The name of the file, in a folder of the cache, is a SHA-256 of the sources: all that the bytes
    depend on, versions of the programs that make them too. The file begins with the SHA-256 of
    this name and the bytes that follow. A file that is damaged, or of another name, is computed
    again. A cache that cannot be read or written costs time, and is no error.
    """
    try:
        path = cache_dir() / folder / _name(sources)
    except (RuntimeError, BertFeaturesError):  # there is no home folder, or no working folder
        return compute()
    content = _read(path)
    if content is None:
        content = compute()
        _write(path, content)
    return content


def _name(sources: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(len(source).to_bytes(8, "big"))  # where one ends and the next begins
        digest.update(source)
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    value = content[_HASH_BYTES:]
    if _hash(path, value) == content[:_HASH_BYTES]:
        return value
    logger.debug("%s is damaged or of another name; it is computed again", path)
    return None


def _hash(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).digest()


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, overwrite=True) as new:
            new.write_bytes(_hash(path, content) + content)
    except (OSError, BertFeaturesError) as error:
        logger.debug("cannot keep %s: %s", path, error)
