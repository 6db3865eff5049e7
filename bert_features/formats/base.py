"""What the writers of all formats share: a features file appears whole or not at all."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from bert_features.errors import OutputError, first_line
from bert_features.files import Staging, real_target, remove_leftovers, storage_errors
from bert_features.files.checksums import as_hex
from bert_features.formats import sidecar
from bert_features.formats.checks import check_texts
from bert_features.formats.columns import (
    IdType,
    check_columns,
    columns_of,
    convert_to_columns,
)
from bert_features.formats.headers import TEXTS_CHECKSUM, complete_metadata
from bert_features.formats.records import Feature, FeatureBatch

# Examples that the metadata names.
_NAMED = 10


class FeatureWriter(ABC):
    """Writes one features file; a context manager.

    Everything goes into hidden files beside `path`. Only `close` (a `with` block that ends without
    an exception) renames them into place; a failure, or `discard`, removes them and leaves an older
    file at `path` as it was.

    Args:
      path: the file to write. Of a symbolic link, the file it points to is written.
      features: what each batch holds, in the order of the file's columns.
      metadata: JSON-serialisable facts about the run; `features`, `id_type`, `format_version` and,
        if there are any, `losses` are added.
      id_type: whether the ids of all examples are `int` (64 bits) or `str`.
      overwrite: whether a file already at `path` may be replaced. A sidecar that a killed run left
        without its features file is always replaced.
      checksum: whether to take the checksum of the file while it is written, where that can be.

    Attributes:
      path: the file that is written, never a symbolic link.
      records: number of examples written so far.
      bytes_written: size of the finished file and its sidecar; 0 before `close`.
      crc32c: the checksum of the finished file, if it was taken; else None.
      texts_crc32c: the checksum of all texts, if the caller sets it before `close`.

    Raises:
      OutputError: the file exists, or cannot be made where `path` says.
    """

    has_sidecar: ClassVar[bool] = False
    # Whether it goes back in `_file`, or writes bytes that change afterwards.
    needs_seeking: ClassVar[bool] = False
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
        checksum: bool = False,
    ) -> None:
        self.crc32c: str | None = None
        self.records = 0
        self.bytes_written = 0
        self.texts_crc32c: str | None = None
        self._features = tuple(features)
        self._id_type = id_type
        self._closed = False
        self._columns = columns_of(self._features, id_type)
        self._stated, self._losses = dict(metadata), dict[str, Any]()
        self._metadata = self._describe()
        targets = self.targets(Path(path))
        self.path = targets[-1]
        with storage_errors(f"write {self.path}"):
            for target in targets[:-1]:
                remove_leftovers(target)
            orphans = sidecar.orphans(targets)
            self._staging = Staging(targets, overwrite=overwrite, replaceable=orphans)
        with self._whole_or_nothing():
            # Writing to it never fails; `_staging.raise_failure` raises what went wrong, after each
            # `_write` and `_finish`. Long loops inside those should call it too.
            place, checksummed = self._staging.path(self.path), checksum or self.has_sidecar
            self._file: Any = (
                self._staging.create(place)
                if self.needs_seeking
                else self._staging.create_behind(place, checksummed=checksummed)
            )
            self._open()

    @classmethod
    def targets(cls, path: Path) -> list[Path]:
        """The files that a writer of `path` puts in place, in that order."""
        path = real_target(path)
        # The sidecar comes first: a features file that is in its place has its metadata.
        return [sidecar.sidecar_path(path), path] if cls.has_sidecar else [path]

    # What a format implements.

    def _open(self) -> None:  # noqa: B027 - some formats have no beginning
        """Begins the file, `_file`."""

    @abstractmethod
    def _write(self, batch: FeatureBatch) -> None:
        """Writes a batch, which is not empty and has been checked."""

    def _finish(self) -> None:  # noqa: B027 - some formats write everything at once
        """Writes what is pending, and closes what a library opened."""

    def _abandon(self) -> None:  # noqa: B027 - some formats have nothing to close
        """Closes what a library opened, of a file that will be removed."""

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
            columns = convert_to_columns(batch)
            try:
                check_columns(columns, self._columns)
            except (KeyError, ValueError) as error:
                raise OutputError(f"a batch is not as announced: {first_line(error)}") from error
            if not self.holds_any_text:
                check_texts(columns, self._columns)
            if len(batch):
                self._note_losses(batch)
                self._write(batch)
            self._staging.raise_failure()
        self.records += len(batch)

    def close(self) -> None:
        """Finishes the file and puts it in its place. A second call does nothing.

        Raises:
          OutputError: it could not be finished; nothing was left behind.
        """
        if self._closed:
            return
        with self._whole_or_nothing():
            self._metadata = self._describe()
            self._finish()
            if self.has_sidecar:
                self._write_sidecar()
            self.bytes_written = self._staging.commit()
            crc = getattr(self._file, "crc", None)
            self.crc32c = None if crc is None else as_hex(crc)
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

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    @contextlib.contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Removes everything when its block fails; failures of the disk become `OutputError`."""
        try:
            with storage_errors(f"write {self.path}"):
                try:
                    yield
                except Exception:
                    # A library may have stumbled over a failure that a file had kept quiet.
                    self._staging.raise_failure()
                    raise
        except BaseException:
            self.discard()
            raise

    def _describe(self) -> dict[str, Any]:
        """The metadata, with what is known of the examples so far."""
        late = {"losses": self._losses, TEXTS_CHECKSUM: self.texts_crc32c}
        metadata = self._stated | {name: value for name, value in late.items() if value}
        return complete_metadata(metadata, self._features, self._id_type)

    def _note_losses(self, batch: FeatureBatch) -> None:
        """Adds what a run counted of a batch and int8 does not show, with the first ids."""
        for name in ("non_finite", "clipped"):
            lost = batch.counts.get(name, np.zeros(len(batch)))
            if lost.any():
                before = self._losses.get(name, {"count": 0, "first_ids": []})
                ids = before["first_ids"] + batch.unique_ids[lost > 0][:_NAMED].tolist()
                total = before["count"] + int(lost.sum())
                self._losses[name] = {"count": total, "first_ids": ids[:_NAMED]}

    def _write_sidecar(self) -> None:
        """Writes the sidecar, which is put in place before the features file."""
        # The count lets the reader see that a text or record file was cut between two records.
        content = self._metadata | {"records": self.records}
        self._file.flush()
        text = sidecar.make(content, self._file.crc, self._staging.path(self.path))
        self._staging.create(self._staging.path(self._staging.targets[0])).write(text)
