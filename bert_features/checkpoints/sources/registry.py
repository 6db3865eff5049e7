"""Where a checkpoint comes from: the table of sources, asked in order, and how each fetches it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bert_features import files
from bert_features.checkpoints.sources import (
    folder,
    hf_hub,
    minilm,
    published,
    store,
    tf_hub,
)
from bert_features.checkpoints.weights.other_files import check_regular
from bert_features.config.bert_config import GeluForm
from bert_features.errors import CheckpointError


class Source(NamedTuple):
    """One row of the table: a kind of name that a user may give a checkpoint.

    Attributes:
      matches: whether a name is of this kind.
      fetch: the local path of a checkpoint, which is downloaded if it is not here; for its errors
        see `find_checkpoint`.
      names: the parts of a name that may show the casing. The folder of a model from a hub is
        named by its commit or hash, so the name that was asked for counts too.
      sha256: the SHA-256 that its weights must have; None if unknown.
      is_uncased: whether texts are lower-cased for the checkpoint of a name, whatever its files
        say; None if unknown.
      hidden_act: the form of GELU of its checkpoints, whatever the files say; None if unknown.
    """

    matches: Callable[[str], bool]
    fetch: Callable[[str], Path]
    names: Callable[[str], list[str]] = lambda name: [Path(name.partition("@")[0]).name]
    sha256: str | None = None
    is_uncased: Callable[[str], bool | None] = lambda name: None
    hidden_act: GeluForm | None = None


def source_of(name: str) -> Source:
    """The first source whose kind of name this is; a path, if it is of no kind."""
    return next((row for row in SOURCES.values() if row.matches(name)), SOURCES["LocalPath"])


def local_file(path: str | Path) -> Path:
    """The local path of a file; one on an object store is copied into the cache by `fetch_file`."""
    local = store.fetch_file(str(path)) if files.is_url(path) else files.local_path(path)
    check_regular(local)
    return local


def _tf_hub(name: str) -> Path:
    folder_or_url = tf_hub.fetch(name)
    return store.fetch(folder_or_url) if files.is_url(folder_or_url) else Path(folder_or_url)


def _published(name: str) -> Path:
    row = published.find_published(name)
    try:
        return hf_hub.fetch(f"{hf_hub.PREFIX}{row.repository}")
    except CheckpointError as error:
        raise CheckpointError(
            f"{name}: {error}. Google's archive of it is {row.url}: unpack that and pass the folder"
        ) from error


SOURCES: dict[str, Source] = {
    "Minilm": Source(lambda name: name == minilm.MINILM, minilm.fetch, sha256=minilm.SHA256),
    "TfHub": Source(tf_hub.is_handle, _tf_hub, tf_hub.names_of),
    "Address": Source(files.is_url, store.fetch),
    "LocalPath": Source(folder.is_path, folder.fetch),
    "Published": Source(
        lambda name: published.resolve(name) is not None,
        _published,
        is_uncased=lambda name: published.find_published(name).casing == "uncased",
        hidden_act="gelu_tanh",  # of google-research/bert, which trained them
    ),
    "Hub": Source(lambda name: hf_hub.parse(name) is not None, hf_hub.fetch),
}
