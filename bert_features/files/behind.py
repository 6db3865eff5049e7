"""Files written behind: a thread writes what is there while its user makes the next bytes.

The kernel takes half a second to write the vectors of a million tokens of BERT-base to memory, as
it finds room for each 4 KiB. Checksums and conversions of the next ones take half of that.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from bert_features.files.checksums import checksum

# Smaller pieces are copied, so that they do not keep what they were cut from.
_SMALL_BYTES = 1 << 16
# Pieces are handed to the thread together once they have this size. A shorter file has no thread.
_ENOUGH_BYTES = 4 << 20
# Bytes in the hands of the thread: a group of Arrow, or several parts of a row group of Parquet.
# More would keep the memory of a megabatch that is written already from being used again.
_MAX_BYTES = 32 << 20


class _File(Protocol):
    def write(self, data: Any, /) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class BehindFile:
    """A file that is only ever written at its end; a thread writes it in the order of the calls.

    What is written must not change before `flush` or `close`. One thread at a time may call it.

    Args:
      file: the file, of which nothing is written yet.
      report: takes what writing raised, in the thread. No method here raises it.
      checksummed: whether the thread takes the checksum.

    Attributes:
      crc: the checksum of all bytes, up to the last `flush` or `close`; None if it is not taken.
        Nothing is read back, so it also shows what the disk changed.
    """

    closed = False

    def __init__(
        self, file: _File, report: Callable[[Exception], None], *, checksummed: bool = False
    ) -> None:
        self.crc = 0 if checksummed else None
        self._file, self._report = file, report
        self._thread: ThreadPoolExecutor | None = None
        self._has_threads = True
        self._pieces: list[Any] = []
        self._gathered = self._handed = self._position = 0
        self._waiting: deque[tuple[Future[None], int]] = deque()

    def write(self, data: Any) -> int:
        """Appends some bytes, at a later time; gives their number."""
        size = memoryview(data).nbytes
        self._pieces.append(data if size >= _SMALL_BYTES else bytes(data))
        self._gathered += size
        self._position += size
        if self._gathered >= _ENOUGH_BYTES:
            self._hand_over()
        return size

    def tell(self) -> int:
        """The number of bytes so far."""
        return self._position

    def flush(self) -> None:
        """Writes everything."""
        self._wait(0)
        self._write(self._take_pieces())
        self._file.flush()

    def close(self) -> None:
        """Writes everything and closes the file. A second call does nothing."""
        try:
            if not self.closed:
                self.flush()
        finally:
            self.closed = True
            if self._thread is not None:
                self._thread.shutdown()
            self._file.close()

    def _hand_over(self) -> None:
        size = self._gathered
        self._wait(_MAX_BYTES - size)
        pieces = self._take_pieces()
        try:
            if self._has_threads:
                self._thread = self._thread or ThreadPoolExecutor(1, "file")
                self._waiting.append((self._thread.submit(self._write, pieces), size))
                self._handed += size
                return
        except RuntimeError:  # none can start, as when the interpreter ends
            self._has_threads = False
        self._wait(0)
        self._write(pieces)

    def _take_pieces(self) -> list[Any]:
        pieces, self._pieces, self._gathered = self._pieces, [], 0
        return pieces

    def _wait(self, allowed: int) -> None:
        """Waits until the thread has at most `allowed` bytes, or nothing."""
        while self._waiting and (self._waiting[0][0].done() or self._handed > allowed):
            self._waiting[0][0].result()
            self._handed -= self._waiting.popleft()[1]

    def _write(self, pieces: list[Any]) -> None:
        try:
            for piece in pieces:
                self._file.write(piece)
                if self.crc is not None:
                    self.crc = checksum(piece, self.crc)
        except Exception as error:
            self._report(error)
