"""The bytes and lines of input files: opened, decompressed by suffix, decoded."""

import bz2
import contextlib
import gzip
import io
import lzma
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal
from urllib.parse import urlsplit

from bert_features.errors import InputError
from bert_features.files import connect, is_url, local_path, remote_errors

EncodingErrors = Literal["strict", "replace"]

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
    return _file_name(path).suffix.lower() in _DECOMPRESSORS


def is_stream(path: str | Path) -> bool:
    """Whether the input can be read only once: standard input, a pipe, a device.

    Raises:
      InputError: the file cannot be looked up.
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

    Texts go through a BERT some ten thousand times slower than through this.

    Raises:
      InputError: the file cannot be looked up.
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
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {name_of(path)}: {reason}") from error


def check_file(path: str | Path) -> None:
    """Refuses a missing file and a directory.

    Raises:
      InputError: the path is neither a file nor `-`.
    """
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
    """Opens an input for reading; a file with a suffix of compression is decompressed.

    Raises:
      InputError: it cannot be opened.
    """
    check_file(path)
    with contextlib.ExitStack() as stack:
        with reading(path):
            file: Any = stack.enter_context(_open(path))
            if is_compressed(path):
                if not file.peek(1):  # gzip and Zstandard would take it for no data
                    raise EOFError("it is empty, not compressed data")
                decompressed = _DECOMPRESSORS[_file_name(path).suffix.lower()](file)
                # Buffered: this is what makes finding lines fast.
                file = stack.enter_context(io.BufferedReader(decompressed))
        yield file


def open_seekable(path: str | Path) -> BinaryIO:
    """Opens a file for reading in any order, not decompressed.

    Raises:
      InputError: it cannot be opened.
    """
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


def read_lines(path: str | Path, *, encoding_errors: EncodingErrors = "strict") -> Iterator[str]:
    r"""Reads the lines of a file, one at a time, "\n" included.

    Args:
      path: a UTF-8 file or its address, which may be compressed, or `-` for standard input.
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).

    Raises:
      InputError: the file cannot be read, or holds bytes that are not UTF-8.
    """
    name = name_of(path)
    with open_bytes(path) as file:
        offset = 0
        for number, line in enumerate(_lines(file, path)):
            try:
                yield line.decode("utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                raise InputError.naming(
                    "{name}, line {line}: byte {byte:#04x} at file offset {offset} is not UTF-8; "
                    "convert the file, or pass {encoding_errors:'replace'}",
                    name=name,
                    line=number + 1,
                    byte=line[error.start],
                    offset=offset + error.start,
                ) from error
            offset += len(line)


def _lines(file: BinaryIO, path: str | Path) -> Iterator[bytes]:
    with reading(path):
        yield from file


def count_lines(path: str | Path) -> int | None:
    """Number of lines that `read_lines` will give; None where counting is not cheap.

    Raises:
      InputError: the file cannot be read.
    """
    if not is_cheap_to_count(path):
        return None
    count, last = 0, b"\n"
    with open_bytes(path) as file, reading(path):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


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


def _decompress_zstandard(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    return stream


# Not fsspec's table: it has Zstandard only beside another package, and it does not buffer.
_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _decompress_zstandard,
}
