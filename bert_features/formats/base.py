"""What the writers of all formats share: a features file appears whole or not at all."""

import contextlib
import errno
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from bert_features.errors import OutputError
from bert_features.formats.checks import check_batch, check_features, check_id_type, check_texts
from bert_features.formats.columns import IdType
from bert_features.formats.records import Feature, FeatureBatch

FORMAT_VERSION = 2

# A full or failing disk in the words of the system, which is all that some libraries pass on.
STORAGE_REASONS = tuple(
    os.strerror(code)
    for code in (
        errno.ENOSPC,
        errno.EFBIG,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.EACCES,
        errno.ENOENT,
        errno.ENAMETOOLONG,
    )
)


def sidecar_path(path: Path) -> Path:
    """Where the metadata lies of a format that has no place for it."""
    return path.with_name(f"{path.name}.metadata.json")


class FeatureWriter(ABC):
    """Writes one features file; a context manager.

    Everything goes into hidden files beside `path`. Only `close` (a `with` block that ends without
    an exception) renames them into place; a failure, or `discard`, removes them and leaves an older
    file at `path` as it was.

    Args:
      path: the file to write.
      features: what each batch holds, in the order of the file's columns.
      metadata: JSON-serialisable facts about the run; `features`, `id_type` and
        `format_version` are added.
      id_type: whether the ids of all examples are `int` (64 bits) or `str`.
      overwrite: whether a file already at `path` may be replaced.

    Attributes:
      path: the file to write.
      records: examples written so far.
      bytes_written: what `close` left on disk, sidecar included; 0 before.

    Raises:
      OutputError: the file exists, or cannot be made where `path` says.
    """

    has_sidecar: ClassVar[bool] = False
    # Whether it keeps any text as it is, NUL and lone surrogates included.
    holds_any_text: ClassVar[bool] = False

    def __init__(
        self,
        path: Path,
        *,
        features: Sequence[Feature],
        metadata: Mapping[str, Any],
        id_type: IdType = "int",
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path)
        self.records = 0
        self.bytes_written = 0
        self._features = tuple(features)
        self._id_type = id_type
        self._overwrite = overwrite
        self._targets = self.targets(self.path)
        self._temporaries: list[Path] = []
        self._files: list[_SteadyFile] = []
        self._closed = False
        with self._whole_or_nothing():
            check_id_type(id_type)
            check_features(self._features)
            self._metadata = _complete(metadata, self._features, id_type)
            self._check_targets()
            self._open()

    @classmethod
    def targets(cls, path: Path) -> list[Path]:
        """The files that a writer of `path` puts in place, in that order."""
        # The sidecar comes first: a features file that is in its place has its metadata.
        return [sidecar_path(path), path] if cls.has_sidecar else [path]

    # What a format implements.

    @abstractmethod
    def _open(self) -> None:
        """Begins the file, at `_partial(self.path)`."""

    @abstractmethod
    def _write(self, batch: FeatureBatch) -> None:
        """Writes a batch, which is not empty and has been checked."""

    @abstractmethod
    def _finish(self) -> None:
        """Writes what is pending, and closes what `_create` did not open."""

    def _abandon(self) -> None:  # noqa: B027 - some formats have nothing to close
        """Closes what `_create` did not open, of a file that will be removed."""

    # What a user calls.

    def write(self, batch: FeatureBatch) -> None:
        """Appends a batch. Its arrays may be kept for a while: do not change them afterwards.

        Raises:
          OutputError: the batch does not hold the features announced, or the disk is full; nothing
            was left behind.
        """
        if self._closed:
            raise OutputError(f"cannot write {self.path}: it was closed already")
        with self._whole_or_nothing():
            check_batch(batch, self._features, self._id_type)
            if not self.holds_any_text:
                check_texts(batch, self._features, self._id_type)
            if len(batch):
                self._write(batch)
            self._raise_failure()
        self.records += len(batch)

    def close(self) -> None:
        """Finishes the file and puts it in its place. A second call does nothing.

        Raises:
          OutputError: it could not be finished; nothing was left behind.
        """
        if self._closed:
            return
        with self._whole_or_nothing():
            self._finish()
            self._write_sidecar()
            self._close_files()
            self._raise_failure()
            size = self._sync()
            self._publish()
        self._closed = True
        self.bytes_written = size
        self._remove_temporaries()

    def discard(self) -> None:
        """Gives up and removes all that was written. After `close` it does nothing."""
        if self._closed:
            return
        self._closed = True
        # Whatever a library says about its half-made file: the first error is the one to report.
        with contextlib.suppress(Exception):
            self._abandon()
        self._close_files()
        self._remove_temporaries()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    # What formats use.

    def _partial(self, target: Path) -> Path:
        """The hidden file beside `target` that is to become it."""
        return self._temporary(target.name)

    def _temporary(self, name: str) -> Path:
        """A hidden file beside `path`; it is gone when the writer is closed or discarded."""
        temporary = self.path.with_name(f".{name}.{os.getpid()}.partial")
        if temporary not in self._temporaries:
            self._temporaries.append(temporary)
        return temporary

    def _create(self, temporary: Path) -> io.BufferedRandom:
        """Opens a temporary file to write and read.

        Writing to it never fails: `_raise_failure` tells. The base calls that after each `_write`
        and `_finish`; long loops inside those should do so too.
        """
        raw = _SteadyFile(temporary, "w+b")
        self._files.append(raw)
        raw.buffered = io.BufferedRandom(raw, buffer_size=1 << 20)
        return raw.buffered

    def _raise_failure(self) -> None:
        """Raises the first failure that a file of `_create` met."""
        for file in self._files:
            if file.failure is not None:
                raise file.failure

    # The template's own steps.

    @contextlib.contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Removes everything when its block fails; failures of the disk become `OutputError`."""
        try:
            yield
        except BaseException as error:
            self.discard()
            # A library may have stumbled over the consequences of a failure that a file kept quiet.
            first = next((file.failure for file in self._files if file.failure), error)
            reason = _storage_reason(first)
            if reason is None:
                raise
            raise OutputError(
                f"cannot write {self.path}: {reason}; nothing was left behind"
            ) from first

    def _check_targets(self) -> None:
        for target in self._targets:
            check_target(target, overwrite=self._overwrite)

    def _write_sidecar(self) -> None:
        if not self.has_sidecar:
            return
        # The count lets the reader see that a text or record file was cut between two records.
        text = json.dumps(self._metadata | {"records": self.records}, indent=2)
        file = self._create(self._partial(sidecar_path(self.path)))
        file.write(text.encode() + b"\n")

    def _close_files(self) -> None:
        for file in self._files:
            file.buffered.close()

    def _sync(self) -> int:
        """Brings the finished files to the disk and returns their size in bytes.

        A quota or a network file system may only find out now that there is no room.
        """
        size = 0
        for target in self._targets:
            with self._partial(target).open("rb") as file:
                os.fsync(file.fileno())
                size += os.fstat(file.fileno()).st_size
        return size

    def _publish(self) -> None:
        """Renames the finished files into place: all of them, or none."""
        self._check_targets()
        with contextlib.ExitStack() as undo:
            for target in self._targets[:-1]:
                undo.callback(_put_back, target, self._set_aside(target))
                self._partial(target).replace(target)
            self._partial(self.path).replace(self.path)
            undo.pop_all()

    def _set_aside(self, target: Path) -> Path | None:
        if not target.exists():
            return None
        return target.replace(self._temporary(f"{target.name}.older"))

    def _remove_temporaries(self) -> None:
        for temporary in self._temporaries:
            with contextlib.suppress(OSError):
                temporary.unlink()


class _SteadyFile(io.FileIO):
    """A file that keeps its first failure to itself and from then on only pretends to write.

    So no library above it meets a full disk, and each closes in good order and lets go of its
    handles; HDF5, for one, cannot close a file that it cannot flush. The writer looks at `failure`
    and gives up.
    """

    failure: OSError | None = None
    buffered: io.BufferedRandom

    def write(self, data: Any, /) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes

    def truncate(self, size: int | None = None, /) -> int:
        if self.failure is None:
            try:
                return super().truncate(size)
            except OSError as error:
                self.failure = error
        return self.tell() if size is None else size


def _put_back(target: Path, older: Path | None) -> None:
    if older is None:
        target.unlink(missing_ok=True)
    else:
        older.replace(target)


def _storage_reason(error: BaseException) -> str | None:
    """What the disk's trouble is, or None if `error` has nothing to do with the disk."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(error)
    return next((reason for reason in STORAGE_REASONS if reason in text), None)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuses a path that cannot be written, or may not be replaced."""
    if target.is_dir():
        raise OutputError(f"{target} is a directory; name a file in it")
    if target.exists() and not target.is_file():
        raise OutputError(f"{target} is not a regular file; only such a file can be written")
    if target.exists() and not overwrite:
        raise OutputError(f"{target} exists; pass --overwrite to replace it")
    if not target.parent.is_dir():
        raise OutputError(f"cannot write {target}: there is no folder {target.parent}; create it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"cannot write {target}: the folder {target.parent} is not writable; "
            "choose another or change its permissions"
        )


def _complete(
    metadata: Mapping[str, Any], features: Sequence[Feature], id_type: str
) -> dict[str, Any]:
    complete = {
        **metadata,
        "features": [feature.to_metadata() for feature in features],
        "id_type": id_type,
        "format_version": FORMAT_VERSION,
    }
    try:
        json.dumps(complete)
    except (TypeError, ValueError) as error:
        raise OutputError(
            f"metadata is not JSON: {error}; allowed are strings, numbers, booleans, None, "
            "lists and dicts of them"
        ) from error
    return complete
