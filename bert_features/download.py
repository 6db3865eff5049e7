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
import re
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.errors import CheckpointError, ConfigError
from bert_features.published import SOURCE, Published, find_published, resolve

if TYPE_CHECKING:
    import requests

logger = logging.getLogger("bert_features")

CACHE_VARIABLE = "BERT_FEATURES_CACHE"
MIRROR_VARIABLE = "BERT_FEATURES_MIRROR"

REQUIRED = ("vocab.txt", "bert_config.json", "bert_model.ckpt.index")
_DATA = re.compile(r"bert_model\.ckpt\.data-\d{5}-of-\d{5}")
MOST_MEMBERS = 100
_BLOCK = 1 << 18

# Called with the bytes that are there and the bytes there will be, None while nobody has told.
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server.

    Attributes:
      attempts: connections at most, the first included.
      backoff: seconds before the second one, doubled before each further one.
      timeout: seconds without a connection, and without a byte, that end an attempt.
    """

    attempts: int = 5
    backoff: float = 0.5
    timeout: tuple[float, float] = (10.0, 60.0)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


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
    files: dict[str, _File]


class _Arriving(BaseModel):
    """Which archive a .partial file is the beginning of.

    Attributes:
      url: its address.
      size: bytes of the whole; None if the server has not told.
      etag: its version by the server's word, if strong.
      last_modified: its date by the server's word.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    size: int | None
    etag: str | None
    last_modified: str | None

    @property
    def validator(self) -> str | None:
        """What If-Range takes; without one nothing can be resumed."""
        return self.etag or self.last_modified


class _TryAgainError(Exception):
    """An attempt that failed for a reason that may pass."""


# ---- the cache


def cache_dir() -> Path:
    """The folder of downloaded checkpoints: $BERT_FEATURES_CACHE, or the platform's place."""
    told = os.environ.get(CACHE_VARIABLE)
    if told:
        return Path(told).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))


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
        problems = _missing(folder) if record is None else _wrong_sizes(folder, record)
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
    patience: Patience = Patience(),
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
            path.relative_to(folder).as_posix(): _File(size=path.stat().st_size, sha256=_hash(path))
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
    _write_whole(_record_path(row), record.model_dump_json(indent=2))


def _write_whole(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _missing(folder: Path) -> list[str]:
    """What a folder lacks to be a checkpoint."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    lacking = [name for name in REQUIRED if name not in names]
    if not any(_DATA.fullmatch(name) for name in names):
        lacking.append("bert_model.ckpt.data-00000-of-00001")
    return [f"there is no {name}" for name in lacking]


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
    _Fetch(url, partial, row.most_bytes, progress, patience, by_hand).run()
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
        _discard(partial)  # it would fail again
        raise
    finally:
        _remove(fresh, old)
    _discard(partial)
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
    return Record(url=url, sha256=digest, size=_size(archive), seen=seen, files={})


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


# ---- one file over HTTP


@dataclass(frozen=True)
class _Fetch:
    """The download of one file, which goes on from what is there of it already.

    Attributes:
      url: its address.
      partial: where it goes; what has come stays there when this fails.
      most_bytes: what is larger is refused.
      progress: called as bytes arrive.
      patience: with the server.
      otherwise: what the user can do if it cannot be had, for messages.
    """

    url: str
    partial: Path
    most_bytes: int
    progress: Progress
    patience: Patience
    otherwise: str

    def run(self) -> None:
        """Downloads it, in several attempts if need be.

        Raises:
          CheckpointError: it cannot be had, or is not what the server says it is.
          OSError: `partial` cannot be written.
        """
        for attempt in range(1, self.patience.attempts + 1):
            try:
                with _network_errors(self.url, self.otherwise):
                    return self._attempt()
            except _TryAgainError as error:
                if attempt == self.patience.attempts:
                    raise self._given_up(error) from error
                wait = self.patience.backoff * 2 ** (attempt - 1)
                logger.info("%s: %s; trying again in %g s", self.url, error, wait)
                time.sleep(wait)
        raise ConfigError(f"attempts is {self.patience.attempts}; allowed: at least 1")

    def _given_up(self, error: _TryAgainError) -> CheckpointError:
        kept = _size(self.partial)
        resume = f" The {kept:,} bytes that came are kept: run it again." if kept else ""
        return CheckpointError(
            f"cannot download {self.url} (tried {self.patience.attempts} times): {error}.{resume} "
            f"{self.otherwise}"
        )

    def _attempt(self) -> None:
        import requests

        done = _size(self.partial)
        kept = _read_arriving(self.partial)
        if kept is None or kept.url != self.url or kept.validator is None:
            kept, done = None, 0
        if done and kept is not None and done == kept.size:
            return
        # Not compressed on the way: lengths and ranges are to be the archive's own.
        headers = {"Accept-Encoding": "identity"}
        if done and kept is not None and kept.validator is not None:
            headers |= {"Range": f"bytes={done}-", "If-Range": kept.validator}
        logger.info("downloading %s%s", self.url, f", on from byte {done:,}" if done else "")
        with requests.get(
            self.url, headers=headers, stream=True, timeout=self.patience.timeout
        ) as response:
            self._check_answer(response)
            if response.status_code == 206:
                total = self._continue(response, kept, done)
            else:
                done, total = 0, self._begin(response)
            self._receive(response, done, total)

    def _check_answer(self, response: "requests.Response") -> None:
        status = f"{response.status_code} {response.reason or ''}".strip()
        if response.status_code == 416:
            # What is here is as long as the file or longer, and nobody knows of which file.
            _discard(self.partial)
            raise _TryAgainError(f"the server answered {status}")
        if response.status_code in (408, 425, 429) or response.status_code >= 500:
            raise _TryAgainError(f"the server answered {status}")
        if response.status_code not in (200, 206):
            raise CheckpointError(
                f"cannot download {self.url}: the server answered {status}. {self.otherwise}"
            )
        if self.url.startswith("https://") and not response.url.startswith("https://"):
            raise CheckpointError(f"{self.url} redirects to {response.url}, which is not encrypted")
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise CheckpointError(f"{self.url} comes as {encoding}, which was not asked for")

    def _begin(self, response: "requests.Response") -> int | None:
        """Makes room for the whole file; how many bytes it has, None if the server does not say."""
        arriving = _arriving(self.url, response, _number(response, "Content-Length"))
        # In this order: a new description must never stand beside old bytes.
        _discard(self.partial)
        _write_whole(_arriving_path(self.partial), arriving.model_dump_json())
        return arriving.size

    def _continue(
        self, response: "requests.Response", kept: _Arriving | None, done: int
    ) -> int | None:
        """Checks that a 206 goes on where the partial file ends, in the same version of it."""
        if kept is None or not _is_range(response, done, kept.size):
            _discard(self.partial)
            told = response.headers.get("Content-Range", "")
            raise _TryAgainError(f"the server answered with the wrong range {told!r}")
        # Some servers do not know If-Range, and answer with a part of whatever is there now.
        now = _arriving(self.url, response, kept.size)
        if (kept.etag and now.etag and kept.etag != now.etag) or (
            kept.last_modified and now.last_modified and kept.last_modified != now.last_modified
        ):
            _discard(self.partial)
            raise _TryAgainError("the file has changed at the server")
        return kept.size

    def _receive(self, response: "requests.Response", done: int, total: int | None) -> None:
        if total is not None and total > self.most_bytes:
            raise self._too_large()
        self.progress(done, total)
        with self.partial.open("ab") as file:
            for block in response.iter_content(_BLOCK):
                done += len(block)
                if done > self.most_bytes:
                    raise self._too_large()
                if total is not None and done > total:
                    _discard(self.partial)
                    raise CheckpointError(f"{self.url} sent more than the {total} bytes it told of")
                file.write(block)
                self.progress(done, total)
        if total is not None and done < total:
            raise _TryAgainError(f"the connection broke off at {done:,} of {total:,} bytes")

    def _too_large(self) -> CheckpointError:
        _discard(self.partial)
        return CheckpointError(
            f"{self.url} has more than {self.most_bytes:,} bytes: it cannot be that checkpoint"
        )


def _arriving(url: str, response: "requests.Response", size: int | None) -> _Arriving:
    etag = response.headers.get("ETag")
    return _Arriving(
        url=url,
        size=size,
        # A weak one tells that the meaning is the same, not the bytes; If-Range takes none.
        etag=None if etag is None or etag.startswith("W/") else etag,
        last_modified=response.headers.get("Last-Modified"),
    )


def _is_range(response: "requests.Response", done: int, size: int | None) -> bool:
    """Whether a 206 holds the bytes from `done` on, of a file of that size."""
    told = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", told)
    if match is None:
        return False
    first, last, total = int(match[1]), int(match[2]), match[3]
    length = _number(response, "Content-Length")
    return (
        first == done
        and (size is None or last < size)
        and (size is None or total in ("*", str(size)))
        and (length is None or length == last - first + 1)
    )


def _number(response: "requests.Response", header: str) -> int | None:
    text = response.headers.get(header, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _arriving_path(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _read_arriving(partial: Path) -> _Arriving | None:
    try:
        return _Arriving.model_validate_json(_arriving_path(partial).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _discard(partial: Path) -> None:
    # Bytes without a description are never used; a description without bytes does no harm.
    partial.unlink(missing_ok=True)
    _arriving_path(partial).unlink(missing_ok=True)


@contextlib.contextmanager
def _network_errors(url: str, otherwise: str) -> Iterator[None]:
    """Sorts what requests raises: what may pass, and what will not."""
    import requests

    passing = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    )
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise CheckpointError(f"cannot reach {url}: {_reason(error)}. {otherwise}") from error
    except passing as error:
        raise _TryAgainError(_reason(error)) from error
    except requests.RequestException as error:
        raise CheckpointError(f"cannot download {url}: {_reason(error)}. {otherwise}") from error


def _reason(error: BaseException) -> str:
    """What went wrong, without the names of the classes it was wrapped in."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    text = inner if isinstance(inner, str) else str(error)
    # urllib3 puts the connection it was before the words.
    text = re.sub(r"^\S+\(.*?\): ", "", " ".join(text.split()))
    return text[:300].rstrip(".") or type(error).__name__


# ---- archives


def unpack(archive: Path, folder: Path, *, most_bytes: int, source: str) -> dict[str, _File]:
    """Unpacks the archive of a checkpoint; a single folder at its top is left out.

    Args:
      archive: the zip.
      folder: where to; must not exist. What is there when this fails is the caller's to remove.
      most_bytes: that all its files together may have.
      source: what to call it in messages.

    Returns:
      Name below `folder` -> size and hash.

    Raises:
      CheckpointError: it is not a zip, is damaged, holds anything but plain files below itself,
        too much of it, or not a checkpoint.
      OSError: `folder` cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _members(opened, most_bytes)
            files = {}
            left = most_bytes
            for name, member in members.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as packed, target.open("xb") as file:
                    files[name] = _copy(packed, file, left)
                left -= files[name].size
    except _HostileError as error:
        raise CheckpointError(f"{source} is refused: {error}") from error
    # What zipfile raises of damaged archives, an encrypted or an unknown method.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{source} is not a sound zip archive: {error}") from error
    problems = _missing(folder) if folder.is_dir() else ["it is empty"]
    if problems:
        raise CheckpointError(f"{source} holds no BERT checkpoint: {'; '.join(problems)}")
    return files


class _HostileError(Exception):
    """Something in an archive that no published checkpoint has."""


def _members(opened: zipfile.ZipFile, most_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive, by the names they are to have, all of them checked."""
    every = opened.infolist()
    if len(every) > MOST_MEMBERS:
        raise _HostileError(f"it holds {len(every)} members; at most {MOST_MEMBERS} are allowed")
    for member in every:
        _check_member(member)
    files = [member for member in every if not member.is_dir()]
    declared = sum(member.file_size for member in files)
    if declared > most_bytes:
        raise _HostileError(f"it unpacks to {declared:,} bytes; at most {most_bytes:,} are allowed")
    tops = {member.filename.partition("/")[0] for member in files}
    nested = len(tops) == 1 and all("/" in member.filename for member in files)
    skip = len(tops.pop()) + 1 if nested else 0
    names = {member.filename[skip:]: member for member in files}
    # Names that differ by case alone are one file on some systems.
    if len({name.casefold() for name in names}) < len(files):
        raise _HostileError("it holds two members of the same name")
    parents = {str(parent) for name in names for parent in Path(name).parents}
    if parents & names.keys():
        raise _HostileError("it holds a file and a folder of the same name")
    return names


def _check_member(member: zipfile.ZipInfo) -> None:
    # As stored: zipfile cuts names at a NUL and turns this system's separators.
    stored = member.orig_filename
    parts = stored.removesuffix("/").split("/")
    if re.search(r"[\x00-\x1f\x7f\\:]", stored) or {"", ".", ".."} & set(parts):
        raise _HostileError(f"its member {stored!r} does not lie below it")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG):
        raise _HostileError(f"its member {stored!r} is a link or a special file")
    if member.flag_bits & 1:
        raise _HostileError(f"its member {stored!r} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _HostileError(f"its member {stored!r} is neither stored nor deflated")


def _copy(packed: IO[bytes], file: IO[bytes], most_bytes: int) -> _File:
    digest, size = hashlib.sha256(), 0
    while block := packed.read(_BLOCK):
        size += len(block)
        if size > most_bytes:
            raise _HostileError("it unpacks to more than it declares")
        digest.update(block)
        file.write(block)
    return _File(size=size, sha256=digest.hexdigest())
