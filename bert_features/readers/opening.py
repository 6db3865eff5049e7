"""The bytes of input files: opened, and decompressed by suffix."""

import contextlib
import io
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from bert_features.errors import InputError
from bert_features.files import connect, is_url, local_path, remote_errors
from bert_features.readers import decompression

_REMOTE_BUFFER = 1 << 20  # bytes


def name_of(path: str | Path) -> str:
    """The name of an input in errors."""
    return "standard input" if str(path) == "-" else str(path)


def suffix_of(path: str | Path) -> str:
    """The suffix that decides the format, in lower case: `.csv` for `A.CSV.gz`."""
    name = _file_name(path)
    return (name.with_suffix("") if is_compressed(path) else name).suffix.lower()


def is_compressed(path: str | Path) -> bool:
    """Whether the suffix is one of a compressed file."""
    return _file_name(path).suffix.lower() in decompression.COMPRESSED_SUFFIXES


def is_stream(path: str | Path) -> bool:
    """Whether the input can be read only once: standard input, a pipe, a device.

    Raises InputError if the file cannot be looked up.
    """
    if str(path) == "-":
        return True
    if is_url(path):
        return False
    with reading(path):
        mode = local_path(path).stat().st_mode
    return not stat.S_ISREG(mode)


def is_cheap_to_count(path: str | Path) -> bool:
    """Whether reading all of an input ahead costs little: a local file that is not compressed.

    Texts go through a BERT some ten thousand times slower than through this. Errors as `is_stream`.
    """
    return not (is_url(path) or is_compressed(path) or is_stream(path))


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turns the errors of reading and decompressing an input into an InputError."""
    if is_url(path):
        with remote_errors(str(path), InputError):
            yield
        return
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {name_of(path)}: {reason}") from error


def check_file(path: str | Path) -> None:
    """Refuses what is neither a file nor `-`; raises InputError."""
    if str(path) == "-":
        return
    if is_url(path):
        filesystem, name = connect(str(path), InputError)
        with reading(path):
            is_directory = filesystem.info(name)["type"] == "directory"
    else:
        with reading(path):
            is_directory = stat.S_ISDIR(local_path(path).stat().st_mode)
    if is_directory:
        raise InputError(f"{path} is a directory; pass a file, or - for standard input")


@contextlib.contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens an input; a file with a suffix of compression is decompressed. Raises InputError."""
    check_file(path)
    with contextlib.ExitStack() as stack:
        with reading(path):
            file: Any = stack.enter_context(_open(path))
            if is_compressed(path):
                suffix = _file_name(path).suffix.lower()
                file = stack.enter_context(decompression.decompress(file, suffix))
        yield file


def open_seekable(path: str | Path) -> BinaryIO:
    """Opens a file for reading in any order, not decompressed; raises InputError if it cannot."""
    with reading(path):
        if not is_url(path):
            return local_path(path).open("rb")
        filesystem, name = connect(str(path), InputError)
        file: BinaryIO = filesystem.open(name, "rb")
        return file


def _file_name(path: str | Path) -> PurePath:
    """A path without what may follow it in a web address (`?token=…`)."""
    text = str(path)
    if text.startswith(("http://", "https://")):
        text = urlsplit(text).path
    return PurePath(text)


def _open(path: str | Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return _standard_input()
    file: Any = open_seekable(path)
    # The files of fsspec's drivers find lines slowly.
    return io.BufferedReader(file, _REMOTE_BUFFER) if is_url(path) else file


def _standard_input() -> contextlib.AbstractContextManager[BinaryIO]:
    if sys.stdin is None:
        raise InputError("standard input is closed; pass a file, or redirect one to it")
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # a stream in memory replaces it
        return contextlib.nullcontext(sys.stdin.buffer)
    # Not sys.stdin.buffer: Python takes its lock at exit, and aborts if an interrupted run left a
    # thread waiting for input.
    return open(descriptor, "rb", closefd=False)
