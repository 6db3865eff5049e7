"""What the readers of all formats share: a features file whose records are read when asked for."""

import contextlib
import json
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np

from bert_features.errors import BertFeaturesError, OutputError
from bert_features.formats.base import FORMAT_VERSION, sidecar_path
from bert_features.formats.checks import check_id_type
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.formats.views import Records

# What a reader takes at once; a single longer example is still read whole.
CHUNK_BYTES = 16 << 20
CHUNK_RECORDS = 1024


class Header(NamedTuple):
    """What a file says of itself: `metadata`, `features`, type of ids, and its records if known."""

    metadata: dict[str, Any]
    features: tuple[Feature, ...]
    id_type: str
    records: int | None


class FeatureFile(Records):
    """A features file; see `Records` for what can be done with it and any slice of it.

    Only what is asked for is read, and only a bounded part of it is in memory at any time. What is
    held open for reading records one by one is let go of by `close`, or at the end of a `with`
    block; a file that is used afterwards opens it again.

    Args:
      path: the file to read.

    Attributes:
      path: the file.
      format: a key of `bert_features.formats.FORMATS`.
      metadata: what the writer was given, `features`, `id_type` and `format_version`; {} where
        there is none.
      features: the features of each record, in order.
      id_type: whether ids are `int` or `str`.

    Raises:
      OutputError: the file is missing, was not written by a writer of this format, or is damaged.
    """

    format: ClassVar[str]
    has_token_ids: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        _check_readable(self.path)
        with self._one_clear_error():
            self.metadata, self._features, self.id_type, self._count = self._read_header()

    # What a format implements; any exception means that the file is damaged.

    @abstractmethod
    def _read_header(self) -> Header:
        """Reads what the file says of itself."""

    @abstractmethod
    def _records(self, wanted: range) -> Iterator[FeatureRecord]:
        """Some records in order."""

    @abstractmethod
    def _batches(self, wanted: range) -> Iterator[FeatureBatch]:
        """Some records in order, as batches of a bounded size."""

    @abstractmethod
    def _record(self, number: int) -> FeatureRecord:
        """One record, whose arrays hold on to no more than itself."""

    @abstractmethod
    def _ragged(self, feature: Feature, wanted: range) -> tuple[np.ndarray, np.ndarray | None]:
        """See `Records.ragged`."""

    @abstractmethod
    def _all_ids(self) -> np.ndarray:
        """The id of each record; features are not read."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what is held open."""

    def _count_records(self) -> int:
        """How many records there are, in a file that does not say."""
        raise ValueError("it does not say how many records it holds")

    # What a user calls, beside what `Records` has.

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""
        return self._features

    def __bool__(self) -> bool:
        return True  # a file that is there, even where `len` is 0

    def __iter__(self) -> Iterator[FeatureRecord]:
        # All of them, for which a file that does not say how many need not be scanned first.
        with self._one_clear_error():
            yield from self._all_records()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        # What is open stays here: another process opens the file for itself.
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"<{self.format} file {self.path}>"

    # What `Records` calls.

    @property
    @final
    def _file(self) -> "FeatureFile":
        return self

    @property
    def _range(self) -> range:
        if self._count is None:
            with self._one_clear_error():
                self._count = self._count_records()
        return range(self._count)

    @cached_property
    def _ids(self) -> np.ndarray:
        with self._one_clear_error():
            ids = self._all_ids()
            self._check_count(len(ids))
            ids.flags.writeable = False  # one array for all who ask
            return ids

    @cached_property
    def _numbers(self) -> dict[int | str, int]:
        """The first record of each id."""
        ids = self._ids.tolist()
        return dict(zip(reversed(ids), range(len(ids) - 1, -1, -1), strict=True))

    def _number_of(self, unique_id: int | str, within: range) -> int | None:
        number = self._numbers.get(unique_id)
        if number is None or number in within:
            return number
        # Of several with this id the first is elsewhere.
        found = np.flatnonzero(self._ids[within.start : within.stop] == unique_id)
        return within[int(found[0])] if found.size else None

    def _iterate(self, wanted: range) -> Iterator[FeatureRecord]:
        with self._one_clear_error():
            yield from self._records(wanted)

    def _read_batches(self, wanted: range) -> Iterator[FeatureBatch]:
        with self._one_clear_error():
            yield from self._batches(wanted)

    def _record_at(self, number: int) -> FeatureRecord:
        with self._one_clear_error():
            return self._record(number)

    def _read_ragged(self, feature: Feature, wanted: range) -> tuple[np.ndarray, np.ndarray | None]:
        with self._one_clear_error():
            return self._ragged(feature, wanted)

    # What formats use.

    def _all_records(self) -> Iterator[FeatureRecord]:
        return self._records(self._range)

    @contextlib.contextmanager
    def _one_clear_error(self) -> Iterator[None]:
        try:
            yield
        except (BertFeaturesError, MemoryError):
            raise
        except Exception as error:
            # Not a list of types: parsers answer damaged bytes with whatever they stumble over.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise OutputError(
                f"cannot read {self.path} as {self.format}: it is damaged, cut short, "
                f"or not a features file of bert_features ({reason})"
            ) from error

    def _check_count(self, seen: int) -> None:
        if self._count is not None and seen != self._count:
            raise ValueError(f"it holds {seen} records where {self._count} were written")


class BatchFile(FeatureFile):
    """A features file whose format keeps many examples together."""

    def _records(self, wanted: range) -> Iterator[FeatureRecord]:
        for batch in self._batches(wanted):
            yield from batch.records(self.features)


def parse_metadata(text: str | bytes) -> tuple[dict[str, Any], tuple[Feature, ...], str]:
    """The metadata that a writer left, the features it lists, and the type of ids.

    Raises:
      ValueError, KeyError, TypeError, OutputError: it is not a writer's.
    """
    metadata = json.loads(text)
    version = metadata["format_version"]
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version is {version!r}; this release reads {FORMAT_VERSION}")
    features = tuple(
        Feature(**{**entry, "layers": tuple(entry["layers"]), "weights": tuple(entry["weights"])})
        for entry in metadata["features"]
    )
    check_id_type(metadata["id_type"])
    return metadata, features, metadata["id_type"]


def read_sidecar(path: Path) -> Header | None:
    """What the sidecar of the features file `path` says, or None where there is no sidecar.

    Raises:
      ValueError, KeyError, TypeError: it is not a writer's.
    """
    try:
        text = sidecar_path(path).read_bytes()
    except FileNotFoundError:
        return None
    metadata, features, id_type = parse_metadata(text)
    return Header(metadata, features, id_type, int(metadata.pop("records")))


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from error
