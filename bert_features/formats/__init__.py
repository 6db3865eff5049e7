"""Features files: six formats, each written as a whole or not at all, and read lazily.

Importing this package imports none of the libraries behind the formats.
"""

import errno
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from bert_features.config.extract_config import FileFormat
from bert_features.config.features import SMALL_DTYPES
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.files import Location, check_target, locate
from bert_features.formats import sidecar
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import IdType
from bert_features.formats.folder import FeatureFiles, FeatureFolder
from bert_features.formats.manifest import MANIFEST
from bert_features.formats.reader import FeatureFile
from bert_features.formats.restored import as_floats
from bert_features.formats.views import FeatureView

logger = logging.getLogger("bert_features")

__all__ = [
    "DTYPES",
    "FORMATS",
    "SUFFIXES",
    "FeatureFile",
    "FeatureFolder",
    "FeatureView",
    "FeatureWriter",
    "IdType",
    "check_dtype",
    "check_output",
    "open_writer",
    "output_format",
    "output_targets",
    "read_features",
]

# The module of each format, which has a `Writer` and a `File`.
FORMATS: dict[str, str] = {n: f"bert_features.formats.{n}" for n in get_args(FileFormat)}

# Data types that each format can hold: Arrow, NumPy itself and HDF5 have no bfloat16.
_DTYPES = ("float16", "float32", *SMALL_DTYPES)
DTYPES: dict[str, tuple[str, ...]] = dict.fromkeys(FORMATS, _DTYPES) | dict.fromkeys(
    ("jsonl", "tfrecord"), (*_DTYPES, "bfloat16")
)

SUFFIXES: dict[str, str] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".jsonl": "jsonl",
    ".npz": "npz",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".tfrecord": "tfrecord",
}


def open_writer(path: str | Path, *, format: str, **arguments: Any) -> FeatureWriter:
    """Begins a features file; the other arguments are those of `FeatureWriter`.

    Raises OutputError if the format is unknown, the file exists, or it cannot be created there.
    """
    writer: type[FeatureWriter] = _module(format).Writer
    return writer(Path(path), **arguments)


def check_dtype(format: str, dtype: str, error: type[BertFeaturesError] = OutputError) -> None:
    """Refuses a data type that the format cannot hold (`DTYPES`); raises `error`."""
    if dtype in DTYPES[format]:
        return
    others = ", ".join(name for name, dtypes in DTYPES.items() if dtype in dtypes)
    raise error(
        f"dtype is '{dtype}'; format '{format}' holds {', '.join(DTYPES[format])}; choose one of "
        "these" + (f", or a format that holds {dtype}: {others}" if others else "")
    )


def output_targets(path: str | Path, *, format: str) -> list[Path]:
    """The file that a writer of `path` puts in place, and its sidecar if it has one.

    Raises OutputError for an unknown format.
    """
    writer: type[FeatureWriter] = _module(format).Writer
    return writer.targets(Path(path))


def check_output(path: str | Path, *, format: str, overwrite: bool = False) -> None:
    """Refuses what `open_writer` with these arguments would refuse, and writes nothing.

    Raises:
      OutputError: the format is unknown, the file exists, or it cannot be created there.
    """
    targets = output_targets(path, format=format)
    orphans = sidecar.orphans(targets)
    for target in targets:
        check_target(target, overwrite=overwrite or target in orphans)


def read_features(
    path: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    verify: bool = False,
    floats: bool = False,
) -> FeatureFile:
    """Opens a features file, or a features folder; records are read when they are asked for.

    Args:
      path: the file to read; or the folder of a finished run, or the `_manifest.json` in it, which
        is read as one file (`FeatureFolder`). Such a folder may also be at an address. Several
        files or folders are read as one, if their vectors may be compared (`FeatureFiles`).
      format: a key of `FORMATS`; by default the format of the path's suffix (`SUFFIXES`), or of the
        folder's files.
      verify: whether to read the whole file at once and compare its checksums
        (`FeatureFile.verify`). A warning names what has none.
      floats: whether int8 and binary vectors are turned back into float32 as they are read: int8
        by the scale in the metadata, each bit into -1 or 1.

    Raises:
      OutputError: the format is unknown or not that of the folder's files, or the file is missing,
        damaged or not a features file; or several files are unlike each other.
    """
    paths = [path] if isinstance(path, str | Path) else path
    if not isinstance(paths, Sequence) or not all(isinstance(p, str | Path) for p in paths):
        raise OutputError(
            f"path is of type {type(path).__name__}; allowed: the path of a features file or "
            "folder, or a list of paths"
        )
    files = [_open(each, format) for each in paths]
    opened = files[0] if isinstance(path, str | Path) else FeatureFiles(files)
    if verify and (unchecked := opened.verify()):
        text = "%s: not checked: %s, which have no checksum"
        logger.warning(text, opened.path, " and ".join(unchecked))
    return as_floats(opened) if floats else opened


def folder_of(path: str | Path) -> Location | None:
    """The features folder that a path or an address means; None if it means a file."""
    place = locate(path)
    if isinstance(place, Path):
        if os.path.isdir(place):  # noqa: PTH112 - may be too long a name
            return place
        return place.parent if place.name == MANIFEST else None
    folder, _, name = place.rpartition("/")
    if name == MANIFEST:
        return folder
    is_file = not str(path).endswith("/") and PurePosixPath(name).suffix.lower() in SUFFIXES
    return None if is_file else place


def _open(path: str | Path, format: str | None) -> FeatureFile:
    folder, place = folder_of(path), locate(path)
    if folder is None:
        return _open_file(place, format)
    opened = FeatureFolder(folder)
    if format not in (None, opened.format):
        raise OutputError(
            f"the files of {folder} are {opened.format}, but format is {format}; leave format out"
        )
    return opened


def _open_file(path: Location, format: str | None) -> FeatureFile:
    if not isinstance(path, Path):
        raise OutputError(
            f"cannot read {path}: it is the address of a file; copy it to this machine, or pass "
            "the address of a features folder"
        )
    if format is None and not path.suffix and not os.path.lexists(path):
        raise OutputError(f"cannot read {path}: {os.strerror(errno.ENOENT)}")
    file: type[FeatureFile] = _module(format or _format_of(path)).File
    return file(path)


def output_format(path: str | Path, format: str | None = None) -> str:
    """The format to write `path` in: `format`, else the format of the suffix.

    Raises OutputError if the suffix belongs to another format, or to none and `format` is None.
    """
    if format is None:
        return _format_of(Path(path), _OTHER_OUTPUT)
    suffix_format = SUFFIXES.get(Path(path).suffix.lower())
    if suffix_format not in (None, format):
        raise OutputError(
            f"{path} has the suffix of {suffix_format}, but the format is {format}; change the "
            "suffix or leave the format out"
        )
    return format


def _module(format: str) -> Any:
    if format not in FORMATS:
        raise OutputError(f"format {format!r} is unknown; allowed: {', '.join(FORMATS)}")
    return importlib.import_module(FORMATS[format])


# What to do about a name that shows no format.
_OTHER_INPUT = "rename it, or name its format (check: --format; in Python: format)"
_OTHER_OUTPUT = (
    f"or pass format: {', '.join(FORMATS)}; or end it with / to write a folder of shards"
)


def _format_of(path: Path, cure: str = _OTHER_INPUT) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        received = f"the suffix {suffix!r}, which belongs to no format" if suffix else "no suffix"
        raise OutputError(f"{path} has {received}; allowed: {', '.join(SUFFIXES)}; {cure}")
    return SUFFIXES[suffix]
