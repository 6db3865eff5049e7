"""Files: addresses of object stores, files that appear whole or not at all, the cache, locks.

A writer works in a hidden folder beside its target, `.NAME.RANDOM.partial`:
  new/NAME     what will take the target's place
  older/NAME   what the target was, in case a later step fails
  lock         an empty file that the writer keeps locked
  ...          scratch files
When everything is on the disk, renaming puts it in place. A killed run leaves its hidden folder
behind; the next run on the same target removes it, because its lock is free.
"""

import contextlib
import errno
import glob
import hashlib
import io
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from bert_features import errors
from bert_features.errors import BertFeaturesError, ConfigError, MissingExtraError, OutputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

logger = logging.getLogger("bert_features")

CACHE_VARIABLE = "BERT_FEATURES_CACHE"

_SUFFIX = ".partial"
# The longest name that most file systems allow, in bytes.
_NAME_MAX = 255
# The hidden name adds a few bytes to the target's.
_LONGEST_NAME = 200
# Failures of a disk or a path in the system's words, which is all that some libraries pass on.
_CODES = "ENOSPC EFBIG EDQUOT EIO EROFS EACCES EPERM ENOENT ENOTDIR EISDIR ENAMETOOLONG"
_STORAGE_REASONS = [os.strerror(getattr(errno, code)) for code in _CODES.split()]
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_LOCAL = re.compile(r"^(file|local)://")
# Schemes whose driver an extra of this package brings.
_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
# Packages that fsspec's own drivers need.
_NEEDS = {"http": "aiohttp", "https": "aiohttp", "sftp": "paramiko", "ssh": "paramiko"}


class Reporting(TypedDict, total=False):
    """How failures are reported; `every`: not only the disk's, as libraries have their own."""

    error: type[BertFeaturesError]
    advice: str
    every: bool


IN_CACHE: Reporting = {
    "error": errors.CheckpointError,
    "advice": f"set {CACHE_VARIABLE} to a folder that has room and that you may write",
}


def cache_dir() -> Path:
    """The folder for downloads and compiled code: $BERT_FEATURES_CACHE, or the platform's."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Holds a lock that one thread of one process can hold at a time.

    The system frees the lock when its process ends, however it ends. Without flock, filelock 4 has
    a marker file instead; one that a process killed on another machine left must be deleted.

    Args:
      path: the lock file; it stays, empty.
      waiting: what to log if another process holds the lock.

    Raises:
      OSError: `path` cannot be made.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info(waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def storage_errors(action: str, **report: Unpack[Reporting]) -> Iterator[None]:
    """Turns failures into "cannot ACTION: REASON; ADVICE"; the project's errors are left alone."""
    try:
        yield
    except BertFeaturesError:
        raise
    except Exception as failure:
        reason = _storage_reason(failure)
        if reason is None:
            if not report.get("every"):
                raise
            reason = " ".join(str(failure).split())[:200] or type(failure).__name__
        advice = report.get("advice", "nothing was left behind")
        error = report.get("error", OutputError)
        raise error(f"cannot {action}: {reason}; {advice}") from failure


def _storage_reason(failure: Exception) -> str | None:
    """What is wrong with the disk or the path; None if `failure` is about something else."""
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    # TensorFlow, HDF5 and safetensors raise classes of their own.
    text = " ".join(str(failure).split()).casefold()
    return next((known for known in _STORAGE_REASONS if known.casefold() in text), None)


def real_target(path: str | Path) -> Path:
    """What a path names: the file or folder a symbolic link points to, else the path itself."""
    # Not by `Path`, which raises for a name that is too long.
    return Path(os.path.realpath(path) if os.path.islink(path) else path)  # noqa: PTH114


def check_target(
    target: Path, *, overwrite: bool, folder: bool = False, **report: Unpack[Reporting]
) -> None:
    """Refuses a path (as `real_target` gives it) that cannot be written, or may not be replaced."""
    error = report.get("error", OutputError)
    with storage_errors(f"write {target}", **report):
        if problem := _name_problem(target) or _problem(target, folder, overwrite):
            raise error.naming(f"{{target}} {problem}", target=target)
        parent = target.parent
        if folder and not parent.exists():
            return  # it will be made
        if not parent.is_dir():
            raise error(f"cannot write {target}: there is no folder {parent}; create it")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise error(
                f"cannot write {target}: the folder {parent} is not writable; "
                f"{report.get('advice', 'choose another or change its permissions')}"
            )


def _name_problem(target: Path) -> str | None:
    """Why the file system of `target` cannot hold its name; None if it can, or is not known."""
    try:
        limit = os.pathconf(target.parent, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):  # not on this system, or there is no such folder
        limit = _NAME_MAX
    size = len(os.fsencode(target.name))
    if 0 < limit < size:
        return f"has a name of {size} bytes; allowed: at most {limit}, choose a shorter name"
    return None


def _problem(target: Path, folder: bool, overwrite: bool) -> str | None:
    """Why what is at `target` cannot be replaced; None if it can, or nothing is there."""
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if target.is_symlink():
        return f"is a symbolic link; pass the path of the {'folder' if folder else 'file'} itself"
    if folder and not target.is_dir():
        return "is not a directory; pass the path of one"
    if not folder and target.is_dir():
        return "is a directory; name a file in it"
    if not folder and not target.is_file():
        return "is not a regular file; only such a file can be written"
    return None if overwrite else "exists; pass {overwrite:True} to replace it"


# The part that a file plays in a run, as `the input`; and its path, or a descriptor that is open.
Role = tuple[str, str | Path | int]


def check_apart(read: Iterable[Role], written: Iterable[Role], *, folder: bool = False) -> None:
    """Refuses to write a file or a folder over one that is read, and to write one file twice.

    Files are compared as the system sees them, through hard and symbolic links.

    Args:
      read: the files that the run reads; those that do not exist, and addresses, are passed over.
      written: the files or folders that the run writes, which need not exist.
      folder: whether they are folders, of which nothing stays.

    Raises:
      OutputError: two are the same, or a file that is read is in a folder that is written.
    """
    others = [(role, path) for role, path in read if _exists(path)]
    for role, path in written:
        for other, other_path in others:
            if _is_same_file(other_path, path):
                named = "" if isinstance(path, int) else f", {path}"
                raise OutputError(
                    f"{other} and {role} are the same file{named}; pass another path for {role}"
                )
            if folder and _is_inside(other_path, path):
                raise OutputError(
                    f"{path} holds {other} ({other_path}), so it is not replaced; pass another path"
                )
        others.append((role, path))


def _exists(path: str | Path | int) -> bool:
    # Not by `Path`, which raises for a name that is too long.
    return isinstance(path, int) or (not is_url(path) and os.path.exists(_local(path)))  # noqa: PTH110


def _is_same_file(one: str | Path | int, other: str | Path | int) -> bool:
    try:
        first, second = os.stat(_local(one)), os.stat(_local(other))  # noqa: PTH116
    except (OSError, ValueError):  # one of them is not there yet
        if isinstance(one, int) or isinstance(other, int):
            return False
        return os.path.realpath(local_path(one)) == os.path.realpath(local_path(other))
    # Standard input and output may be the same terminal.
    return stat.S_ISREG(first.st_mode) and os.path.samestat(first, second)


def _is_inside(path: str | Path | int, folder: str | Path | int) -> bool:
    """Whether a file, or the link that leads to it, is in a folder or below it."""
    if isinstance(path, int) or isinstance(folder, int):
        return False
    file, root = local_path(path), os.path.realpath(folder)
    places = (os.path.realpath(file), Path(os.path.realpath(file.parent), file.name))
    return any(Path(place).is_relative_to(root) for place in places)


def _local(path: str | Path | int) -> Any:
    return path if isinstance(path, int) else local_path(path)


class Staging:
    """Files, or one folder, that are written out of sight and take their places together.

    Args:
      targets: their paths when done, in the order of the renaming; all in the same folder.
      overwrite: whether what is at a target may be replaced.
      replaceable: targets that may be replaced without `overwrite`.
      folder: whether the one target is a folder.
      report: how a target that is refused is reported.

    Raises:
      BertFeaturesError: a target is refused.
      OSError: the disk failed. `storage_errors` makes a message of it.
    """

    def __init__(
        self,
        targets: Sequence[Path],
        *,
        overwrite: bool = False,
        replaceable: Collection[Path] = (),
        folder: bool = False,
        **report: Unpack[Reporting],
    ) -> None:
        self.targets = tuple(targets)
        self._overwrite, self._folder = overwrite, folder
        self._replaceable = frozenset(targets if overwrite else replaceable)
        self._report = report
        self._files: list[_SteadyFile] = []
        if folder:
            self.targets[-1].parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.targets[-1])
        self._check()
        self._hidden, self._lock = _claim(self.targets[-1])
        try:
            for name in ("new", "older"):
                (self._hidden / name).mkdir()
        except BaseException:
            self.discard()
            raise

    def path(self, target: Path) -> Path:
        """Where to write what will take the place of `target`; nothing is there yet."""
        return self._hidden / "new" / target.name

    def scratch(self, name: str) -> Path:
        """A path for a file that is gone when the staging ends."""
        return self._hidden / name

    def create(self, path: Path) -> io.BufferedRandom:
        """Opens one of these paths to write and read.

        Writing to the file never fails. `raise_failure` raises what went wrong.
        """
        raw = _SteadyFile(path, "x+b")
        self._files.append(raw)
        raw.buffered = io.BufferedRandom(raw, buffer_size=1 << 20)
        return raw.buffered

    def raise_failure(self) -> None:
        """Raises the first failure that a file of `create` met."""
        for file in self._files:
            if file.failure is not None:
                raise file.failure

    def sync(self) -> int:
        """Brings everything to the disk, so that only the renaming is left; its size in bytes.

        A quota or a network file system may find out only now that there is no room.
        """
        self._close_files()
        self.raise_failure()
        size = 0
        for path in map(self.path, self.targets):
            for part in path.rglob("*") if self._folder else [path]:
                if part.is_file():
                    size += _sync(part)
        return size

    def commit(self) -> int:
        """Puts everything in place, or nothing; its size in bytes."""
        size = self.sync()
        self._check()
        *others, last = self.targets
        new = {target: self.path(target).stat() for target in self.targets}
        try:
            for target in others:
                self._keep(target)
                self._put(target)
            if self._folder and self._overwrite and last.exists():
                # A rename does not replace a folder that has files. `discard` can put it back.
                last.replace(self._hidden / "older" / last.name)
            self._put(last)
        except BaseException:
            # Read from the disk: Ctrl-C may come between a call and a note that it has returned.
            placed = [t for t in new if t.exists() and os.path.samestat(t.stat(), new[t])]
            for target in placed if last not in placed else []:
                older = self._hidden / "older" / target.name
                older.replace(target) if older.exists() else target.unlink()
            raise
        self.discard()
        return size

    def discard(self) -> None:
        """Removes everything that is not in its place. A second call does nothing."""
        self._close_files()
        _put_back(self._hidden, self.targets[-1])
        shutil.rmtree(self._hidden, ignore_errors=True)
        self._lock.release()

    def _check(self) -> None:
        for target in self.targets:
            self._check_target(target)

    def _check_target(self, target: Path) -> None:
        overwrite = target in self._replaceable
        check_target(target, overwrite=overwrite, folder=self._folder, **self._report)

    def _keep(self, target: Path) -> None:
        """Gives a file that is to be replaced a second name, or copies it."""
        if target.exists():
            older = self._hidden / "older" / target.name
            try:
                os.link(target, older)
            except OSError:  # some file systems have no hard links
                shutil.copy2(target, older)

    def _put(self, target: Path) -> None:
        new = self.path(target)
        if not (target in self._replaceable or self._folder):
            # A link, unlike a rename, never replaces what another process has just put there.
            with contextlib.suppress(OSError):
                os.link(new, target)
                return
            self._check_target(target)
        try:
            new.replace(target)
        except OSError:  # perhaps another process has put a folder there
            self._check_target(target)
            raise

    def _close_files(self) -> None:
        for file in self._files:
            file.buffered.close()


@contextlib.contextmanager
def replacing(
    path: Path, *, overwrite: bool, folder: bool = False, **report: Unpack[Reporting]
) -> Iterator[Path]:
    """A path for what takes the place of `path` when the block ends without an exception.

    After an exception, what was there is still there. Of a symbolic link, what it points to is
    replaced. Arguments are `Staging`'s. Failures become errors as `Reporting` says.
    """
    with storage_errors(f"write {path}", **report):
        target = real_target(path)
        staging = Staging([target], overwrite=overwrite, folder=folder, **report)
        try:
            yield staging.path(target)
            staging.commit()
        finally:
            staging.discard()


def write_whole(path: Path, text: str, **report: Unpack[Reporting]) -> None:
    """Writes a small file, or leaves it as it was; errors are `replacing`'s."""
    with replacing(path, overwrite=True, **report) as new:
        new.write_text(text, encoding="utf-8")


def remove_leftovers(target: Path) -> None:
    """Removes what killed runs left beside `target`; a folder they had moved aside comes back."""
    from filelock import FileLock

    # mkdtemp makes eight characters; the hidden folder of another target has more in their place.
    for leftover in list(target.parent.glob(f"{glob.escape(_prefix(target))}????????{_SUFFIX}")):
        lock = FileLock(leftover / "lock", thread_local=False)
        # An OSError: its run is alive, or there are no locks here, or it belongs to another user.
        with contextlib.suppress(OSError, NotImplementedError), lock.acquire(timeout=0):
            _put_back(leftover, target)
            shutil.rmtree(leftover)
            logger.info("removed %s, which a killed run had left", leftover)


def _put_back(hidden: Path, target: Path) -> None:
    """Brings back the folder that a run moved aside, unless something has taken its place."""
    older = hidden / "older" / target.name
    if older.is_dir() and not os.path.lexists(target):
        older.replace(target)


def _prefix(target: Path) -> str:
    name = target.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}."


def _claim(target: Path) -> "tuple[Path, BaseFileLock]":
    """Makes a hidden folder beside `target`, and locks it."""
    from filelock import FileLock, Timeout

    while True:
        # The system makes a folder of this name or fails: no two runs can share one.
        hidden = Path(tempfile.mkdtemp(_SUFFIX, _prefix(target), target.parent))
        try:
            lock = FileLock(hidden / "lock", thread_local=False)
            lock.acquire(timeout=0)
        except Timeout:
            continue  # another run has taken it for a leftover, and removes it
        except (OSError, NotImplementedError):
            return hidden, lock  # no locks here: then no run can take it for a leftover
        except BaseException:  # Ctrl-C
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        if (hidden / "lock").exists():  # else that run was faster
            return hidden, lock
        lock.release()


def _sync(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


class _SteadyFile(io.FileIO):
    """A file that keeps its first failure and from then on only pretends to write.

    So no library above it meets a full disk, and each closes in good order and frees its handles;
    HDF5, for one, cannot close a file that it cannot flush. The writer looks at `failure`.
    """

    failure: OSError | None = None
    buffered: io.BufferedRandom

    def write(self, data: Any, /) -> int:
        return self._attempt(super().write, data, memoryview(data).nbytes)

    def truncate(self, size: int | None = None, /) -> int:
        return self._attempt(super().truncate, size, self.tell() if size is None else size)

    def _attempt(self, call: Callable[[Any], int], argument: Any, pretended: int) -> int:
        if self.failure is None:
            try:
                return call(argument)
            except OSError as error:
                self.failure = error
        return pretended


# Addresses of object stores and servers (gs://, s3://, memory://, https://), opened by fsspec.


def is_url(path: str | Path) -> bool:
    """Whether a path is an address of a server or an object store; `file://` is a local path."""
    path = str(path)
    return _SCHEME.match(path) is not None and _LOCAL.match(path) is None


def local_path(path: str | Path) -> Path:
    """A local path, without `file://` if it has it."""
    return Path(_LOCAL.sub("", str(path), count=1))


def connect(url: str, error: type[BertFeaturesError]) -> tuple[Any, str]:
    """The fsspec file system of an address (see `is_url`), and the path in it.

    Raises:
      BertFeaturesError: of the class `error`; the server cannot be reached.
      ConfigError: the scheme (what is before `://`) is unknown.
      MissingExtraError: the driver of the scheme is not installed.
    """
    import fsspec
    from fsspec.core import url_to_fs

    scheme = url.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as problem:
        raise _missing_driver(scheme, problem) from problem
    except ValueError as problem:
        raise ConfigError(
            f"{url}: {scheme}:// is unknown; allowed: a path, or an address such as "
            "gs://bucket/file or s3://bucket/file"
        ) from problem
    with remote_errors(url, error):
        filesystem, path = url_to_fs(url)
        filesystem.invalidate_cache()  # of listings: what an earlier call saw may be old
        return filesystem, path


@contextlib.contextmanager
def remote_errors(url: str, error: type[BertFeaturesError]) -> Iterator[None]:
    """Turns any error of a driver into one error that names the address."""
    # Drivers raise errors of the libraries below them (aiohttp, botocore), without a common base.
    try:
        yield
    except (BertFeaturesError, MemoryError):
        raise
    except Exception as problem:
        raise error(f"cannot read {url}: {_remote_reason(problem)}") from problem


def _remote_reason(problem: Exception) -> str:
    text = " ".join(str(problem).split())[:200] or type(problem).__name__
    strerror = getattr(problem, "strerror", None)
    if isinstance(problem, FileNotFoundError):
        return strerror or "no such file"
    refused = "no permission: " if isinstance(problem, PermissionError) else ""
    return f"{refused}{strerror or text}"


def _missing_driver(scheme: str, problem: ImportError) -> MissingExtraError:
    from fsspec.registry import known_implementations

    module = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    package = _NEEDS.get(scheme, module)
    if package in ("", "fsspec"):
        return MissingExtraError(f"a package for {scheme}:// ({problem})", install="fsspec[full]")
    named = f"{package}, which opens {scheme}:// addresses,"
    if scheme in _EXTRAS:
        return MissingExtraError(named, _EXTRAS[scheme])
    return MissingExtraError(named, install=package)
