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
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

_INPUT_BYTES = 1 << 16  # compressed bytes read at a time
# Decompressed bytes held for the lines that are made of them.
_OUTPUT_BYTES = 1 << 17


class _Decoder(Protocol):
    """Decompresses one stream: `bz2.BZ2Decompressor` or `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Streams(io.RawIOBase):
    """The decompressed bytes of all streams of a file.

    Args:
      file: the compressed file.
      new_decoder: makes the decoder of one stream.
      padding: the zeros after a stream are a multiple of this number of bytes.
    """

    def __init__(
        self, file: BinaryIO, new_decoder: Callable[[], _Decoder], padding: int = 1
    ) -> None:
        self._file = file
        self._new_decoder = new_decoder
        self._padding = padding
        self._decoder: _Decoder | None = None
        self._streams = 0
        self._pending = b""  # read and not decoded yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer; 0 at the end of the last stream.

        Raises:
          EOFError: the file ends within a stream.
          OSError: a stream is damaged, or something else follows it.
        """
        while self._decoder is not None or self._find_stream():
            output = self._decode(len(buffer))
            if output:
                buffer[: len(output)] = output
                return len(output)
        return 0

    def _find_stream(self) -> bool:
        """Begins the next stream; False if there is none."""
        if not self._streams:
            self._pending = self._file.read(_INPUT_BYTES)
        else:
            self._skip_zeros()
        if not self._pending:
            return False
        self._streams += 1
        self._decoder = self._new_decoder()
        return True

    def _skip_zeros(self) -> None:
        zeros = 0
        while True:
            rest = self._pending.lstrip(b"\0")
            zeros += len(self._pending) - len(rest)
            self._pending = rest or self._file.read(_INPUT_BYTES)
            if rest or not self._pending:
                break
        if zeros % self._padding:
            raise OSError(
                f"{zeros} zeros follow stream {self._streams}, not a multiple of {self._padding}; "
                "it is damaged"
            )

    def _decode(self, max_length: int) -> bytes:
        decoder = self._decoder
        assert decoder is not None
        data = b""
        if decoder.needs_input:
            data = self._pending or self._file.read(_INPUT_BYTES)
            self._pending = b""
            if not data:
                raise EOFError(f"it ends in the middle of stream {self._streams}; it was cut off")
        try:
            output = decoder.decompress(data, max_length)
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise OSError(self._reason(error)) from error
        if decoder.eof:
            self._pending = decoder.unused_data
            self._decoder = None
        return output

    def _reason(self, error: Exception) -> str:
        if self._streams == 1:
            return f"it is damaged, or not compressed as its suffix says: {error}"
        return f"stream {self._streams} is damaged, or is no compressed data: {error}"


def decompress(file: BinaryIO, suffix: str) -> io.BufferedReader:
    """The decompressed bytes of a file.

    Reading raises EOFError where the file is cut off, OSError (in gz also zlib.error) where it is
    damaged or something other than zeros follows its last stream. In zst files zeros are an error
    too, as for `zstd`.

    Args:
      file: the compressed file.
      suffix: one of `SUFFIXES`.

    Raises:
      EOFError: the file is empty.
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
    ".bz2": lambda file: _Streams(file, bz2.BZ2Decompressor),
    # Not FORMAT_AUTO: garbage passes easily for the older format, which has no checksum.
    ".xz": lambda file: _Streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=4),
    ".zst": _open_zstandard,
}
SUFFIXES = frozenset(_OPENERS)
