"""Checksums (CRC-32C) where a format has none: of metadata, of whole files and of columns."""

import json
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bert_features.files.checksums import as_hex, checksum
from bert_features.formats.columns import columns_of, convert_to_columns
from bert_features.formats.records import TEXT, Feature, FeatureBatch

# The key of the checksum of all other metadata, in the metadata.
METADATA_CHECKSUM = "metadata_crc32c"


def checksum_of_json(metadata: Mapping[str, Any]) -> str:
    """The checksum of metadata, as it is written and as it is read again.

    Raises:
      TypeError, ValueError: it is not JSON.
    """
    return as_hex(checksum(json.dumps(metadata, allow_nan=False).encode()))


class ChecksummedFile:
    """A file that is only ever written at its end, and the checksum of what was written.

    Nothing is read back, so the checksum also shows what the disk changed.

    Args:
      file: the file, at its beginning.

    Attributes:
      crc: the checksum of all bytes so far.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc = 0

    def write(self, data: bytes) -> None:
        """Appends some bytes."""
        self._file.write(data)
        self.crc = checksum(data, self.crc)

    def flush(self) -> None:
        """Passes on what is buffered, so that other readers of the file see it."""
        self._file.flush()


class ColumnChecksums:
    """Checksums of the values of each column, of any number of batches, however they were cut.

    They depend on the values alone: a change of the bytes that say how a file stores them, such as
    their type or place, changes the checksum as soon as it changes a value.

    Args:
      features: the features of the batches.
      id_type: the type of their ids.
    """

    def __init__(self, features: tuple[Feature, ...], id_type: str) -> None:
        self._dtypes = {name: c.dtype for name, c in columns_of(features, id_type).items()}
        self._splits = {
            name for name, c in columns_of(features, id_type).items() if c.rows == "splits"
        }
        self._crcs = dict.fromkeys(self._dtypes, 0)

    def add(self, batch: FeatureBatch) -> None:
        """Continues each column."""
        columns = convert_to_columns(batch)
        for name, dtype in self._dtypes.items():
            # Splits begin at 0 in every batch; lengths do not depend on where batches were cut.
            values = np.diff(columns[name]) if name in self._splits else columns[name]
            data = _text_bytes(values) if dtype == TEXT else _number_bytes(values, dtype)
            self._crcs[name] = checksum(data, self._crcs[name])

    def of_columns(self) -> dict[str, str]:
        """The checksum of each column."""
        return {name: as_hex(crc) for name, crc in self._crcs.items()}


def _text_bytes(texts: Any) -> bytes:
    # No text of a format with column checksums holds NUL.
    return "\0".join([*texts, ""]).encode()


def _number_bytes(values: np.ndarray, dtype: str) -> Any:
    little = np.dtype(dtype).newbyteorder("<")
    return np.ascontiguousarray(values, little).reshape(-1).view(np.uint8)


def compare(recorded: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    """Refuses values that are not those that were written.

    Args:
      recorded: the checksum of each column when it was written.
      found: the same as it is read.
      where: the part of the file that was compared, for the message.

    Raises:
      ValueError: they differ.
    """
    for name, crc in found.items():
        if recorded[name] != crc:
            raise ValueError(f"{where}: the values of {name} are not those that were written")
