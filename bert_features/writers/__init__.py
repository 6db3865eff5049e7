"""Features files: five formats, each written as a whole or not at all, and read record by record.

Importing this package imports none of the libraries behind the formats.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_features.errors import OutputError
from bert_features.records import Feature
from bert_features.writers.base import FeatureWriter, check_target
from bert_features.writers.reader import FeatureFile

__all__ = [
    "DEFAULT_FORMAT",
    "FORMATS",
    "SUFFIXES",
    "FeatureFile",
    "FeatureWriter",
    "check_output",
    "open_writer",
    "read_features",
]

# Each module has a `Writer` and a `File`.
FORMATS: dict[str, str] = {
    "parquet": "bert_features.writers.parquet",
    "jsonl": "bert_features.writers.jsonl",
    "npz": "bert_features.writers.npz",
    "hdf5": "bert_features.writers.hdf5",
    "tfrecord": "bert_features.writers.tfrecord",
}
DEFAULT_FORMAT = "parquet"

SUFFIXES: dict[str, str] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".npz": "npz",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".tfrecord": "tfrecord",
}


def open_writer(
    path: str | Path,
    *,
    format: str,
    features: Sequence[Feature],
    metadata: Mapping[str, Any],
    overwrite: bool = False,
) -> FeatureWriter:
    """Begins a features file, to be used in a `with` statement.

    Args:
      path: the file to write; it appears when the writer is closed.
      format: a key of `FORMATS`.
      features: what each batch will hold.
      metadata: JSON-serialisable facts about the run; `features` and `format_version` are added.
      overwrite: whether a file already at `path` may be replaced.

    Raises:
      OutputError: no such format, the file exists, or it cannot be made there.
    """
    writer: type[FeatureWriter] = _module(format).Writer
    return writer(Path(path), features=features, metadata=metadata, overwrite=overwrite)


def check_output(path: str | Path, *, format: str, overwrite: bool = False) -> None:
    """Refuses what `open_writer` with these arguments would, and writes nothing.

    Raises:
      OutputError: no such format, the file exists, or it cannot be made there.
    """
    writer: type[FeatureWriter] = _module(format).Writer
    for target in writer.targets(Path(path)):
        check_target(target, overwrite=overwrite)


def read_features(path: str | Path, *, format: str | None = None) -> FeatureFile:
    """Opens a features file.

    Args:
      path: the file to read.
      format: a key of `FORMATS`; by default the path's suffix tells (`SUFFIXES`).

    Raises:
      OutputError: the format is not known, or the file is missing, damaged or not a features file.
    """
    path = Path(path)
    file: type[FeatureFile] = _module(format or _format_of(path)).File
    return file(path)


def _module(format: str) -> Any:
    if format not in FORMATS:
        raise OutputError(f"format {format!r} is not known; allowed: {', '.join(FORMATS)}")
    return importlib.import_module(FORMATS[format])


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(
            f"{path}: the suffix {suffix!r} tells no format; allowed: {', '.join(SUFFIXES)}; "
            f"or name the format: {', '.join(FORMATS)}"
        )
    return SUFFIXES[suffix]
