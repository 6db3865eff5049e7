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

from bert_features.errors import InputError

EncodingErrors = Literal["strict", "replace"]


def name_of(path: str | Path) -> str:
    """What errors call an input."""
    return "standard input" if str(path) == "-" else str(path)


def suffix_of(path: str | Path) -> str:
    """The suffix that tells the format, in lower case: `.csv` of `A.CSV.gz`."""
    name = PurePath(path)
    return (name.with_suffix("") if is_compressed(path) else name).suffix.lower()


def is_compressed(path: str | Path) -> bool:
    """Whether the suffix says so."""
    return PurePath(path).suffix.lower() in _DECOMPRESSORS


def is_stream(path: str | Path) -> bool:
    """Whether the input can be read only once: standard input, a pipe, a device.

    Raises:
      InputError: the file cannot be looked up.
    """
    if str(path) == "-":
        return True
    with reading(str(path)):
        mode = Path(path).stat().st_mode
    return not stat.S_ISREG(mode)


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what goes wrong in reading and decompressing into an InputError."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {name}: {reason}") from error


def check_file(path: str | Path) -> None:
    """Refuses what is not there, and directories.

    Raises:
      InputError: the path is neither a file nor `-`.
    """
    if str(path) == "-":
        return
    with reading(str(path)):
        mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a directory; pass a file, or - for standard input")


@contextlib.contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens an input for reading; what is compressed by its suffix is decompressed.

    Raises:
      InputError: it cannot be opened.
    """
    if str(path) == "-":
        with _standard_input() as file:
            yield file
        return
    check_file(path)
    with contextlib.ExitStack() as stack:
        with reading(str(path)):
            file = stack.enter_context(Path(path).open("rb"))
            if is_compressed(path):
                if not file.peek(1):  # gzip and Zstandard would take it for no data
                    raise EOFError("it is empty, not compressed data")
                decompressed = _DECOMPRESSORS[PurePath(path).suffix.lower()](file)
                # Buffered: only so are lines found fast.
                file = stack.enter_context(io.BufferedReader(decompressed))
        yield file


def read_lines(path: str | Path, *, encoding_errors: EncodingErrors = "strict") -> Iterator[str]:
    r"""Reads the lines of a file, one at a time, "\n" included.

    Args:
      path: a UTF-8 file, which may be compressed, or `-` for standard input.
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).

    Raises:
      InputError: the file cannot be read, or holds bytes that are not UTF-8.
    """
    name = name_of(path)
    with open_bytes(path) as file:
        offset = 0
        for number, line in enumerate(_lines(file, name)):
            try:
                yield line.decode("utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{name}, line {number + 1}: byte {line[error.start]:#04x} at file offset "
                    f"{offset + error.start} is not UTF-8; convert the file, or pass "
                    "--encoding-errors replace"
                ) from error
            offset += len(line)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    with reading(name):
        yield from file


def count_lines(path: str | Path) -> int | None:
    """How many lines `read_lines` will give; None where that would use the input up, or be dear.

    Reading ahead costs little: texts go through a BERT some ten thousand times slower.

    Raises:
      InputError: the file cannot be read.
    """
    if is_stream(path) or is_compressed(path):
        return None
    count, last = 0, b"\n"
    with open_bytes(path) as file, reading(str(path)):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _standard_input() -> contextlib.AbstractContextManager[BinaryIO]:
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # something in memory stands for it
        return contextlib.nullcontext(sys.stdin.buffer)
    # Not sys.stdin.buffer: Python takes that one's lock as it exits, and dies if an interrupted run
    # left a thread waiting for input.
    return open(descriptor, "rb", closefd=False)


def _decompress_zstandard(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    return stream


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _decompress_zstandard,
}
