"""Download Google's published checkpoints into a cache, whole and verified, or not at all.

The cache holds, for a checkpoint NAME:
  NAME/                the unpacked archive: vocab.txt, bert_config.json, bert_model.ckpt.*
  NAME.json            its `Record`: address and SHA-256, kept at first sight
  NAME.zip.partial     what has come so far of the archive, and beside it, in .json, of which one
  NAME.lock            held by the one process that downloads; empty
Nobody publishes hashes of these archives. So the first download is trusted, as it is by a browser,
and every later one must be the same.
"""

import contextlib
import datetime
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.cache import CACHE_VARIABLE, cache_dir
from bert_features.checkpoints.archive import UnpackedFile, missing_files, unpack
from bert_features.checkpoints.fetch import Fetch, Patience, Progress, discard, write_whole
from bert_features.checkpoints.published import SOURCE, Published, find_published, resolve
from bert_features.errors import CheckpointError, ConfigError

logger = logging.getLogger("bert_features")

MIRROR_VARIABLE = "BERT_FEATURES_MIRROR"

_PATIENCE = Patience()


class Record(BaseModel):
    """What was seen first of a checkpoint.

    Attributes:
      url: where its archive came from; None if it was unpacked by hand.
      sha256: of the archive; None if it was unpacked by hand.
      size: bytes of the archive.
      seen: the day.
      files: what was in it.
    """

    model_config = ConfigDict(frozen=True)

    url: str | None
    sha256: str | None
    size: int | None
    seen: datetime.date
    files: dict[str, UnpackedFile]


def url_of(row: Published) -> str:
    """The address of an archive, at $BERT_FEATURES_MIRROR if that is set.

    Raises:
      ConfigError: the mirror is not an http(s) address.
    """
    base = os.environ.get(MIRROR_VARIABLE) or SOURCE
    if not base.startswith(("https://", "http://")):
        raise ConfigError(f"{MIRROR_VARIABLE} is {base!r}; allowed: an http:// or https:// address")
    return f"{base.rstrip('/')}/{row.path}"


def find(name: str) -> Path | None:
    """The folder of a published checkpoint, if it is in the cache.

    Sizes are checked; hashes are not (see `verify`).

    Args:
      name: a published name or an alias.

    Returns:
      None if it is no published name, or is not in the cache.

    Raises:
      CheckpointError: it is there, and damaged.
    """
    row = resolve(name)
    if row is None:
        return None
    folder = cache_dir() / row.name
    with _cache_errors("read"):
        if not folder.is_dir():
            return None
        record = _read_record(row)
        problems = missing_files(folder) if record is None else _wrong_sizes(folder, record)
    if problems:
        raise CheckpointError(
            f"{folder} is damaged: {'; '.join(problems)}. Download it again with: "
            f"bert-features download {row.name} --force"
        )
    return folder


def download(
    name: str,
    *,
    progress: Progress | None = None,
    force: bool = False,
    forget: bool = False,
    patience: Patience = _PATIENCE,
) -> Path:
    """Makes sure that a published checkpoint is in the cache.

    A download that broke off is resumed. Two processes that want the same one wait for each other.

    Args:
      name: a published name or an alias.
      progress: called as bytes arrive.
      force: download it although it is there; it must still be what was recorded.
      forget: download it although it is there, and record what comes instead of what was.
      patience: with the server.

    Returns:
      Its folder.

    Raises:
      CheckpointError: an unknown name, no network, an answer that is not the archive, an archive
        that is not a checkpoint or not the one recorded, or a cache that cannot be written.
      ConfigError: $BERT_FEATURES_MIRROR is not an address.
    """
    row = find_published(name)
    anew = force or forget
    if not anew and (folder := find(row.name)):
        return folder
    with _cache_errors("write to"), _locked(row):
        # Somebody else may have finished it while this waited for the lock.
        if not anew and (folder := find(row.name)):
            return folder
        record = None if forget else _read_record(row)
        return _download(row, record, progress or (lambda done, total: None), patience)


def verify(name: str) -> Path:
    """Hashes every file of a checkpoint in the cache and compares with what was recorded.

    One that was unpacked by hand is recorded now.

    Raises:
      CheckpointError: it is not in the cache, or a file is not what was recorded.
    """
    row = find_published(name)
    folder = find(row.name)
    if folder is None:
        raise CheckpointError(
            f"{row.name} is not in the cache {cache_dir()}; get it with: "
            f"bert-features download {row.name}"
        )
    with _cache_errors("write to"):
        files = {
            path.relative_to(folder).as_posix(): UnpackedFile(
                size=path.stat().st_size, sha256=_hash(path)
            )
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        record = _read_record(row)
        if record is None:
            logger.info("%s: nothing was recorded of it; recording it as it is", row.name)
            _write_record(row, Record(url=None, sha256=None, size=None, seen=_today(), files=files))
            return folder
    changed = [name for name, file in record.files.items() if files.get(name) != file]
    added = [name for name in files if name not in record.files]
    if changed or added:
        problems = [f"{name} has changed" for name in changed]
        problems += [f"{name} was added" for name in added]
        raise CheckpointError(
            f"{folder} is not what was recorded on {record.seen}: {'; '.join(problems)}. "
            f"Download it again with: bert-features download {row.name} --force"
        )
    return folder


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()


def _record_path(row: Published) -> Path:
    return cache_dir() / f"{row.name}.json"


def _read_record(row: Published) -> Record | None:
    path = _record_path(row)
    try:
        return Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise CheckpointError(
            f"{path} is damaged, so {row.name} cannot be checked; drop the record and download it "
            f"anew with: bert-features download {row.name} --forget"
        ) from error


def _write_record(row: Published, record: Record) -> None:
    write_whole(_record_path(row), record.model_dump_json(indent=2))


def _wrong_sizes(folder: Path, record: Record) -> list[str]:
    problems = []
    for name, file in record.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"there is no {name}")
        elif path.stat().st_size != file.size:
            problems.append(f"{name} has {path.stat().st_size} bytes, {file.size} were recorded")
    return problems


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _cache_errors(verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot {verb} the cache {cache_dir()}: {error.strerror or error}; set "
            f"{CACHE_VARIABLE} to a folder that has room and that you may write"
        ) from error


@contextlib.contextmanager
def _locked(row: Published) -> Iterator[None]:
    """Keeps others, threads of this process included, from downloading the same checkpoint.

    The system lets go of the lock when the process ends, however it ends: a lock cannot go stale.
    """
    import fcntl

    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{row.name}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another process that is downloading %s", row.name)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(
    row: Published, record: Record | None, progress: Progress, patience: Patience
) -> Path:
    cache, url = cache_dir(), url_of(row)
    folder, fresh, old = (cache / f"{row.name}{end}" for end in ("", ".unpacking", ".old"))
    partial = cache / f"{row.name}.zip.partial"
    by_hand = f"Or get that archive elsewhere and unpack its files into {folder}"
    logger.info("downloading %s from %s", row.name, url)
    Fetch(url, partial, row.most_bytes, progress, patience, by_hand).run()
    _remove(fresh, old)
    try:
        new = _checked(row, record, url, partial)
        files = unpack(partial, fresh, most_bytes=row.most_bytes, source=url)
        # Before the folder: one without a record passes for unpacked by hand.
        _write_record(row, new.model_copy(update={"files": files}))
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except CheckpointError:
        discard(partial)  # it would fail again
        raise
    finally:
        _remove(fresh, old)
    discard(partial)
    return folder


def _checked(row: Published, record: Record | None, url: str, archive: Path) -> Record:
    """The record of an archive that came, once it is known to be the one recorded before."""
    digest = _hash(archive)
    known = record.sha256 if record is not None else None
    if record is not None and known is not None and known != digest:
        raise CheckpointError(
            f"{url} has SHA-256 {digest}, but on {record.seen} it had {known}: the archive has "
            "changed, or this is not it. If you trust the new one: "
            f"bert-features download {row.name} --forget"
        )
    seen = record.seen if record is not None and known else _today()
    return Record(url=url, sha256=digest, size=archive.stat().st_size, seen=seen, files={})


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
