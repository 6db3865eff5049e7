"""Staging: files and folders that appear whole or not at all.

A writer works in a hidden folder beside its target, `.NAME.RANDOM.partial`:
  new/NAME     what will take the target's place
  older/NAME   what the target was, in case a later step fails
  lock         an empty file that the writer keeps locked
  ...          scratch files
When everything is on the disk, renaming puts it in place. A killed run leaves its hidden folder
behind; the next run on the same target removes it, because its lock is free.
"""

import contextlib
import glob
import hashlib
import io
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bert_features.files.behind import BehindFile
from bert_features.files.locks import take_lock
from bert_features.files.reporting import Reporting, storage_errors
from bert_features.files.targets import check_target, real_target

if TYPE_CHECKING:
    from filelock import BaseFileLock

logger = logging.getLogger("bert_features")

_SUFFIX = ".partial"
# Gathers small writes; a write of more than this, such as a page of vectors, goes past the buffer.
_BUFFER_BYTES = 1 << 16
# The hidden folders of this process that are there.
_open: set[Path] = set()
# The hidden name adds a few bytes to the target's.
_LONGEST_NAME = 200


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
        raw.buffered = file = io.BufferedRandom(raw, buffer_size=_BUFFER_BYTES)
        return file

    def create_behind(self, path: Path, *, checksummed: bool = False) -> BehindFile:
        """As `create`, but the file is only ever written at its end, by a thread of its own."""
        file = self.create(path)
        raw = self._files[-1]
        raw.buffered = behind = BehindFile(file, raw.fail, checksummed=checksummed)
        return behind

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
                    with part.open("rb") as file:
                        os.fsync(file.fileno())
                        size += os.fstat(file.fileno()).st_size
                elif part.is_dir():
                    _sync_folder(part)
            if self._folder:
                _sync_folder(path)
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
            _sync_folder(last.parent)
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
        with contextlib.suppress(OSError):  # of a `close`, which `ignore_errors` does not ignore
            shutil.rmtree(self._hidden, ignore_errors=True)
        _open.discard(self._hidden)
        if self._lock is not None:
            with contextlib.suppress(OSError):
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
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files of this machine, gone when the block or the process ends.

    Raises:
      OutputError: the disk has no room for one.
    """
    with storage_errors("make a temporary folder", advice="TMPDIR names the folder it goes to"):
        folder = Path(tempfile.mkdtemp(prefix="bert_features-"))
    _open.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _open.discard(folder)


def is_writing() -> bool:
    """Whether this process has hidden folders, which it has to remove before it ends."""
    return bool(_open)


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
    # `_claim` makes eight characters; the hidden folder of another target has more in their place.
    for leftover in list(target.parent.glob(f"{glob.escape(_prefix(target))}????????{_SUFFIX}")):
        if leftover.is_symlink() or (leftover / "older").is_symlink():
            continue  # no run has made it
        # An OSError: there are no locks here, or it belongs to another user.
        with contextlib.suppress(OSError, NotImplementedError):
            if (lock := take_lock(leftover / "lock")) is None:
                continue  # its run is alive
            try:
                _put_back(leftover, target)
                shutil.rmtree(leftover)
            finally:
                lock.release()
            logger.info("removed %s, which a killed run had left", leftover)


def find_leftovers(folder: Path) -> set[Path]:
    """The targets in a folder beside which runs, killed or alive, have hidden folders."""
    pattern = f".*.????????{_SUFFIX}"
    return {path.with_name(path.name[1 : 2 - len(pattern)]) for path in folder.glob(pattern)}


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


def _claim(target: Path) -> "tuple[Path, BaseFileLock | None]":
    """Makes a hidden folder beside `target`, and locks it; None where there are no locks."""
    while True:
        # The name is known before the folder is made: Ctrl-C may come as soon as it is there.
        hidden = target.parent / f"{_prefix(target)}{secrets.token_hex(4)}{_SUFFIX}"
        try:
            _open.add(hidden)
            hidden.mkdir(0o700)  # makes a folder of this name or fails: no two runs can share one
            try:
                lock = take_lock(hidden / "lock")
            except (OSError, NotImplementedError):
                return hidden, None  # then no run can take it for a leftover
            if lock is not None and (hidden / "lock").exists():
                return hidden, lock
            if lock is not None:  # another run has taken it for a leftover, and removed it
                lock.release()
        except FileExistsError:
            pass
        except BaseException:
            _open.discard(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        _open.discard(hidden)


def _sync_folder(path: Path) -> None:
    """Brings the names in a folder to the disk, so that they outlive a loss of power."""
    with contextlib.suppress(OSError):  # not all file systems can; the files are whole in any case
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _SteadyFile(io.FileIO):
    """A file that keeps its first failure and from then on only pretends to write.

    So no library above it meets a full disk, and each closes in good order and frees its handles;
    HDF5, for one, cannot close a file that it cannot flush. The writer looks at `failure`.
    """

    failure: Exception | None = None
    buffered: io.BufferedRandom | BehindFile

    def fail(self, error: Exception) -> None:
        """Notes a failure, after which nothing is written any more; the first one stays."""
        self.failure = self.failure or error

    def write(self, data: Any, /) -> int:
        return self._attempt(super().write, data, memoryview(data).nbytes)

    def truncate(self, size: int | None = None, /) -> int:
        return self._attempt(super().truncate, size, self.tell() if size is None else size)

    def _attempt(self, call: Callable[[Any], int], argument: Any, pretended: int) -> int:
        if self.failure is None:
            try:
                return call(argument)
            except OSError as error:
                self.fail(error)
        return pretended
