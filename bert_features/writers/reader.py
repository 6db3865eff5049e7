"""What the readers of all formats share: a features file read record by record."""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bert_features.errors import BertFeaturesError, OutputError
from bert_features.records import Feature, FeatureBatch, FeatureRecord
from bert_features.writers.base import FORMAT_VERSION, sidecar_path

# What a reader of columns takes at once; a single longer example is still read whole.
CHUNK_BYTES = 16 << 20
CHUNK_RECORDS = 1024


class Header(NamedTuple):
    """What a file says of itself: `metadata`, `features`, and how many records, if it knows."""

    metadata: dict[str, Any]
    features: tuple[Feature, ...]
    records: int | None


class FeatureFile(ABC):
    """A features file; iterating yields its records in order, as often as one likes.

    Only a bounded part of the file is in memory at any time.

    Args:
      path: the file to read.

    Attributes:
      path: the file.
      format: a key of `bert_features.writers.FORMATS`.
      metadata: what the writer was given, `features` and `format_version`; {} where there is none.
      features: the features of each record, in order.

    Raises:
      OutputError: the file is missing, was not written by a writer of this format, or is damaged.
    """

    format: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        _check_readable(self.path)
        with self._one_clear_error():
            self.metadata, self.features, self._count = self._read_header()

    @abstractmethod
    def _read_header(self) -> Header:
        """Reads what the file says of itself; any exception means that the file is damaged."""

    @abstractmethod
    def _records(self) -> Iterator[FeatureRecord]:
        """The records from the first; any exception means that the file is damaged."""

    def __iter__(self) -> Iterator[FeatureRecord]:
        with self._one_clear_error():
            yield from self._records()

    def __len__(self) -> int:
        if self._count is None:
            raise TypeError(f"{self.path} does not say how many records it holds; count them")
        return self._count

    def __bool__(self) -> bool:
        return True  # a file that is there, even where `len` is 0 or not known

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


class ColumnFile(FeatureFile):
    """A features file of flat columns that can be cut anywhere, as `FeatureBatch` has them."""

    @abstractmethod
    def _columns(self) -> AbstractContextManager[Mapping[str, Any]]:
        """Opens the columns by name; slices of each are read when they are taken."""

    def _records(self) -> Iterator[FeatureRecord]:
        with self._columns() as columns:
            for start, stop in self._chunks(columns["row_splits"]):
                yield from self._batch(columns, start, stop).records()

    def _chunks(self, row_splits: Any) -> Iterator[tuple[int, int]]:
        """Ranges of examples that are small enough to be read at once."""
        per_token = sum(f.width * np.dtype(f.dtype).itemsize for f in self.features)
        budget = CHUNK_BYTES // max(per_token, 1)
        start = 0
        while start < len(self):
            splits = np.asarray(row_splits[start : start + CHUNK_RECORDS + 1])
            fitting = int(np.searchsorted(splits, splits[0] + budget, side="right")) - 1
            stop = start + max(fitting, 1)
            yield start, stop
            start = stop

    def _batch(self, columns: Mapping[str, Any], start: int, stop: int) -> FeatureBatch:
        """Examples start:stop, copied out of the file."""
        row_splits = np.array(columns["row_splits"][start : stop + 1])
        tokens = slice(int(row_splits[0]), int(row_splits[-1]))
        return FeatureBatch(
            unique_ids=np.array(columns["unique_ids"][start:stop]),
            row_splits=row_splits - row_splits[0],
            token_ids=np.array(columns["token_ids"][tokens]),
            tokens=columns["tokens"][tokens].tolist(),
            features={f.name: np.array(columns[f.name][tokens]) for f in self.features},
        )


def parse_metadata(text: str | bytes) -> tuple[dict[str, Any], tuple[Feature, ...]]:
    """The metadata that a writer left, and the features it lists.

    Raises:
      ValueError, KeyError, TypeError: it is not a writer's.
    """
    metadata = json.loads(text)
    version = metadata["format_version"]
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version is {version!r}; this release reads {FORMAT_VERSION}")
    features = tuple(
        Feature(**{**entry, "layers": tuple(entry["layers"])}) for entry in metadata["features"]
    )
    return metadata, features


def read_sidecar(path: Path) -> Header | None:
    """What the sidecar of the features file `path` says, or None where there is no sidecar.

    Raises:
      ValueError, KeyError, TypeError: it is not a writer's.
    """
    try:
        text = sidecar_path(path).read_bytes()
    except FileNotFoundError:
        return None
    metadata, features = parse_metadata(text)
    return Header(metadata, features, int(metadata.pop("records")))


def check_columns(columns: Mapping[str, Any], features: tuple[Feature, ...]) -> int:
    """Checks that columns fit together and returns the number of records.

    Raises:
      ValueError, KeyError: they do not, or one is missing.
    """
    row_splits = columns["row_splits"]
    records, tokens = len(row_splits) - 1, int(row_splits[-1])
    expected = {
        "unique_ids": ((records,), "int64"),
        "row_splits": ((records + 1,), "int64"),
        "token_ids": ((tokens,), "int32"),
        "tokens": ((tokens,), str(columns["tokens"].dtype)),
        **{f.name: ((tokens, f.width), f.dtype) for f in features},
    }
    for name, (shape, dtype) in expected.items():
        column = columns[name]
        if (column.shape, str(column.dtype)) != (shape, dtype):
            raise ValueError(
                f"column {name} is {column.dtype} {column.shape}, expected {dtype} {shape}"
            )
    return records


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from error
