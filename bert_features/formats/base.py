"""What the writers of all formats share: a features file appears whole or not at all."""

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from bert_features.errors import OutputError
from bert_features.files import Staging, real_target, remove_leftovers, storage_errors
from bert_features.formats import sidecar
from bert_features.formats.checks import check_batch, check_features, check_id_type, check_texts
from bert_features.formats.checksums import METADATA_CHECKSUM, ChecksummedFile, checksum_of_json
from bert_features.formats.columns import IdType
from bert_features.formats.records import Feature, FeatureBatch

FORMAT_VERSION = 2


class FeatureWriter(ABC):
    """Writes one features file; a context manager.

    Everything goes into hidden files beside `path`. Only `close` (a `with` block that ends without
    an exception) renames them into place; a failure, or `discard`, removes them and leaves an older
    file at `path` as it was.

    Args:
      path: the file to write. Of a symbolic link, the file it points to is written.
      features: what each batch holds, in the order of the file's columns.
      metadata: JSON-serialisable facts about the run; `features`, `id_type` and
        `format_version` are added.
      id_type: whether the ids of all examples are `int` (64 bits) or `str`.
      overwrite: whether a file already at `path` may be replaced. A sidecar that a killed run left
        without its features file is always replaced.

    Attributes:
      path: the file that is written, never a symbolic link.
      records: number of examples written so far.
      bytes_written: size of the finished file and its sidecar; 0 before `close`.

    Raises:
      OutputError: the file exists, or cannot be made where `path` says.
    """

    # A format that has one opens its file with `_create_checksummed`.
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
        self.records = 0
        self.bytes_written = 0
        self._features = tuple(features)
        self._id_type = id_type
        self._closed = False
        check_id_type(id_type)
        check_features(self._features)
        self._metadata = _complete(metadata, self._features, id_type)
        targets = self.targets(Path(path))
        self.path = targets[-1]
        with storage_errors(f"write {self.path}"):
            for target in targets[:-1]:
                remove_leftovers(target)
            orphans = sidecar.orphans(targets)
            self._staging = Staging(targets, overwrite=overwrite, replaceable=orphans)
        with self._whole_or_nothing():
            self._open()

    @classmethod
    def targets(cls, path: Path) -> list[Path]:
        """The files that a writer of `path` puts in place, in that order."""
        path = real_target(path)
        # The sidecar comes first: a features file that is in its place has its metadata.
        return [sidecar.sidecar_path(path), path] if cls.has_sidecar else [path]

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
            if self.has_sidecar:
                self._write_sidecar()
            self.bytes_written = self._staging.commit()
            self._closed = True

    def discard(self) -> None:
        """Gives up and removes all that was written. After `close` it does nothing."""
        if self._closed:
            return
        self._closed = True
        # Whatever a library says about its half-made file: the first error is the one to report.
        with contextlib.suppress(Exception):
            self._abandon()
        self._staging.discard()

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
        """The hidden file that is to become `target`."""
        return self._staging.path(target)

    def _temporary(self, name: str) -> Path:
        """A hidden file that is gone when the writer is closed or discarded."""
        return self._staging.scratch(name)

    def _create(self, temporary: Path) -> io.BufferedRandom:
        """Opens a temporary file to write and read.

        Writing to it never fails; `_raise_failure` raises what went wrong. The base calls that
        after each `_write` and `_finish`; long loops inside those should do so too.
        """
        return self._staging.create(temporary)

    def _create_checksummed(self, temporary: Path) -> ChecksummedFile:
        """Opens the features file of a format that has a sidecar; as `_create`."""
        self._checksummed = ChecksummedFile(self._create(temporary))
        return self._checksummed

    def _raise_failure(self) -> None:
        """Raises the first failure that a file of `_create` met."""
        self._staging.raise_failure()

    # The template's own steps.

    @contextlib.contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Removes everything when its block fails; failures of the disk become `OutputError`."""
        try:
            with storage_errors(f"write {self.path}"):
                try:
                    yield
                except Exception:
                    # A library may have stumbled over a failure that a file had kept quiet.
                    self._raise_failure()
                    raise
        except BaseException:
            self.discard()
            raise

    def _write_sidecar(self) -> None:
        """Writes the sidecar, which is put in place before the features file."""
        # The count lets the reader see that a text or record file was cut between two records.
        content = self._metadata | {"records": self.records}
        text = sidecar.make(content, self._checksummed, self._partial(self.path))
        self._create(self._partial(self._staging.targets[0])).write(text)


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
        return complete | {METADATA_CHECKSUM: checksum_of_json(complete)}
    except (TypeError, ValueError) as error:
        raise OutputError(
            f"metadata is not JSON: {error}; allowed are strings, numbers, booleans, None, "
            "lists and dicts of them"
        ) from error
