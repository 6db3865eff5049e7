"""Decompression of gz, bz2, xz and zst: whole or an error, with one stream or many.

Parallel compressors write many streams, one after the other. Python's own readers of bz2 and xz
take a stream with a damaged header for garbage that may follow a file, and end there without an
error. Here only zeros, the padding of tapes and of xz, may stand after a stream. The libraries' own
readers of gz and zst are as strict.
"""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

_INPUT_BYTES = 1 << 16  # compressed bytes read at a time
# Decompressed bytes held until they are cut into lines.
_OUTPUT_BYTES = 1 << 17


def _streams(file: BinaryIO, new_decoder: Callable[[], Any], padding: int = 1) -> Iterator[bytes]:
    """The decompressed bytes of all streams of a file.

    The zeros after a stream are a multiple of `padding` bytes.

    Raises:
      EOFError: the file ends within a stream.
      OSError: a stream is damaged, or something else follows it.
    """
    stream, pending = 1, file.read(_INPUT_BYTES)
    while pending:
        decoder = new_decoder()
        while not decoder.eof:
            if decoder.needs_input:
                pending = pending or file.read(_INPUT_BYTES)
                if not pending:
                    raise EOFError(f"it ends in the middle of stream {stream}; it was cut off")
            try:
                yield decoder.decompress(pending, _OUTPUT_BYTES)
            except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
                raise OSError(_reason(stream, error)) from error
            pending = b""
        zeros, pending = _skip_zeros(file, decoder.unused_data)
        if zeros % padding:
            raise OSError(
                f"{zeros} zeros follow stream {stream}, not a multiple of {padding}; it is damaged"
            )
        stream += 1


def _skip_zeros(file: BinaryIO, data: bytes) -> tuple[int, bytes]:
    """The number of zeros in front of something else, in `data` and after it; and what follows."""
    zeros = 0
    while not (rest := data.lstrip(b"\0")):
        zeros += len(data)
        data = file.read(_INPUT_BYTES)
        if not data:
            return zeros, b""
    return zeros + len(data) - len(rest), rest


def _reason(stream: int, error: Exception) -> str:
    if stream == 1:
        return f"it is damaged, or not compressed as its suffix says: {error}"
    return f"stream {stream} is damaged, or is no compressed data: {error}"


class _Blocks(io.RawIOBase):
    """The bytes of some blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def decompress(file: BinaryIO, suffix: str) -> io.BufferedReader:
    """The decompressed bytes of a file; `suffix` is one of `COMPRESSED_SUFFIXES`.

    Reading raises EOFError where the file is cut off, OSError (in gz also zlib.error) where it is
    damaged or something other than zeros follows its last stream. In zst files zeros are an error
    too, as for `zstd`. Raises EOFError at once if the file is empty.
    """
    if not file.peek(1):  # type: ignore[attr-defined]  # the libraries would take it for no data
        raise EOFError("it is empty, not compressed data")
    return io.BufferedReader(_OPENERS[suffix](file), _OUTPUT_BYTES)


def _open_zstandard(file: BinaryIO) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


# Not fsspec's table: it has Zstandard only beside another package, and it does not buffer.
_OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": lambda file: _Blocks(_streams(file, bz2.BZ2Decompressor)),
    # Not FORMAT_AUTO: garbage passes easily for the older format, which has no checksum.
    ".xz": lambda file: _Blocks(
        _streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=4)
    ),
    ".zst": _open_zstandard,
}
COMPRESSED_SUFFIXES = frozenset(_OPENERS)
