"""Downloads Google's published checkpoints into a cache, whole and verified, or not at all.

The cache holds, for a checkpoint NAME:
  NAME/                the unpacked archive: vocab.txt, bert_config.json, bert_model.ckpt.*
  NAME.json            its `Record`: address and SHA-256 of the first download
  NAME.zip.partial     the part of the archive that has come
  NAME.lock            held by the one process that downloads; empty
Nobody publishes SHA-256 hashes of these archives. So the first download is trusted, as a browser
does, and every later one must be the same.
"""

import contextlib
import datetime
import hashlib
import logging
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.checkpoints.sources.archive import missing_files, unpack
from bert_features.checkpoints.sources.fetch import Progress, fetch
from bert_features.checkpoints.sources.published import SOURCE, Published, find_published, resolve
from bert_features.errors import CheckpointError, ConfigError
from bert_features.files import (
    IN_CACHE,
    cache_dir,
    check_target,
    locked,
    real_target,
    replacing,
    storage_errors,
    write_whole,
)

logger = logging.getLogger("bert_features")

MIRROR_VARIABLE = "BERT_FEATURES_MIRROR"


class RecordedFile(BaseModel):
    """A file of a checkpoint: its size in bytes, and its SHA-256 in hexadecimal."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


class Record(BaseModel):
    """The first download of a checkpoint: address, hash and size in bytes of its archive.

    These are None if it was unpacked by hand.
    """

    model_config = ConfigDict(frozen=True)

    url: str | None
    sha256: str | None
    size: int | None
    seen: datetime.date
    files: dict[str, RecordedFile]


def url_of(row: Published) -> str:
    """The address of an archive, at $BERT_FEATURES_MIRROR if that is set.

    Raises ConfigError if the mirror is not an http(s) address.
    """
    base = os.environ.get(MIRROR_VARIABLE) or SOURCE
    if not base.startswith(("https://", "http://")):
        raise ConfigError(f"{MIRROR_VARIABLE} is {base!r}; allowed: an http:// or https:// address")
    return f"{base.rstrip('/')}/{row.path}"


def find(name: str) -> Path | None:
    """The folder of a published checkpoint, by its name or an alias; None if the cache lacks it.

    Sizes are checked, and raise CheckpointError; hashes are not (see `verify`).
    """
    row = resolve(name)
    if row is None:
        return None
    folder = cache_dir() / row.name
    with _cache_errors("read"):
        if not folder.is_dir():
            return None
        record = _read_record(row)
        names = (path.name for path in folder.iterdir() if path.is_file())
        problems = missing_files(names) if record is None else _wrong_sizes(folder, record)
    if problems:
        raise CheckpointError(
            f"{folder} is damaged: {'; '.join(problems)}. Download it again with: "
            f"bert-features download {row.name} --force"
        )
    return folder


def download(
    name: str, *, progress: Progress | None = None, force: bool = False, forget: bool = False
) -> Path:
    """Makes sure that a published checkpoint is in the cache, and gives its folder there.

    A download that broke off is resumed. Two processes never download the same one: one waits.

    Args:
      name: a published name or an alias.
      progress: called as bytes arrive.
      force: download it even if it is in the cache; its hash must be the recorded one.
      forget: download it even if it is in the cache, and record its hash instead of the old one.

    Raises:
      CheckpointError: an unknown name, no network, an answer that is not the archive, an archive
        that is not a checkpoint or not the one recorded, or a cache that cannot be written.
      ConfigError: $BERT_FEATURES_MIRROR is not an address.
    """
    row = find_published(name)
    again = force or forget
    if not again and (folder := find(row.name)):
        return folder
    waiting = f"waiting for another process that is downloading {row.name}"
    with _cache_errors("write to"), locked(cache_dir() / f"{row.name}.lock", waiting):
        # Another process may have finished it while this one waited for the lock.
        if not again and (folder := find(row.name)):
            return folder
        record = None if forget else _read_record(row)
        return _download(row, record, progress or (lambda done, total: None))


def verify(name: str) -> Path:
    """Compares the hash of every file of a checkpoint in the cache with the recorded one.

    The files of a checkpoint that was unpacked by hand are recorded now. Raises CheckpointError if
    it is not in the cache, or a file has changed.
    """
    row = find_published(name)
    folder = find(row.name)
    if folder is None:
        raise CheckpointError(
            f"{row.name} is not in the cache {cache_dir()}; get it with: "
            f"bert-features download {row.name}"
        )
    with _cache_errors("write to"):
        files = _files_in(folder)
        record = _read_record(row)
        if record is None:
            logger.info("%s has no record yet; its files are recorded as they are", row.name)
            _write_record(row, Record(url=None, sha256=None, size=None, seen=_today(), files=files))
            return folder
    problems = [f"{n} has changed" for n, file in record.files.items() if files.get(n) != file]
    problems += [f"{n} was added" for n in files if n not in record.files]
    if problems:
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
            f"again with: bert-features download {row.name} --forget"
        ) from error


def _write_record(row: Published, record: Record) -> None:
    write_whole(_record_path(row), record.model_dump_json(indent=2), **IN_CACHE)


def _wrong_sizes(folder: Path, record: Record) -> list[str]:
    problems = []
    for name, file in record.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"there is no {name}")
        elif path.stat().st_size != file.size:
            problems.append(f"{name} has {path.stat().st_size} bytes, {file.size} were recorded")
    return problems


def _files_in(folder: Path) -> dict[str, RecordedFile]:
    return {
        path.relative_to(folder).as_posix(): RecordedFile(
            size=path.stat().st_size, sha256=_hash(path)
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache_errors(verb: str) -> contextlib.AbstractContextManager[None]:
    return storage_errors(f"{verb} the cache {cache_dir()}", **IN_CACHE)


def _download(row: Published, record: Record | None, progress: Progress) -> Path:
    folder, url = cache_dir() / row.name, url_of(row)
    partial = cache_dir() / f"{row.name}.zip.partial"
    manually = f"Or get that archive elsewhere and unpack its files into {folder}"
    check_target(real_target(folder), overwrite=True, folder=True, **IN_CACHE)
    logger.info("downloading %s from %s", row.name, url)
    fetch(url, partial, max_bytes=row.max_bytes, progress=progress, otherwise=manually)
    with replacing(folder, overwrite=True, folder=True, **IN_CACHE) as fresh:
        try:
            new = _checked(row, record, url, partial)
            unpack(partial, fresh, max_bytes=row.max_bytes, source=url)
        except CheckpointError:  # it would be refused again; a full disk leaves it
            partial.unlink()
            raise
        # Before the folder: one without a record passes for unpacked by hand.
        _write_record(row, new.model_copy(update={"files": _files_in(fresh)}))
    partial.unlink()
    return folder


def _checked(row: Published, record: Record | None, url: str, archive: Path) -> Record:
    """The record of an archive that came; refuses an archive that is not the recorded one."""
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
