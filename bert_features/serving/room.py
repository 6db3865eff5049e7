"""Room: the memory that answers under way may take, until their clients have them."""

import contextlib
from collections.abc import Iterator


class Room:
    """A number of bytes that answers share; all calls come from one thread.

    Args:
      size: bytes. An answer alone is let in whatever its size.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0

    @contextlib.contextmanager
    def share(self) -> Iterator["Share"]:
        """A share of it, which is empty at first, and left at the end of the block."""
        share = Share(self)
        try:
            yield share
        finally:
            self._taken -= share.bytes

    def take(self, size: int) -> bool:
        """Takes bytes, if there is room."""
        if self._taken and self._taken + size > self._size:
            return False
        self._taken += size
        return True


class Share:
    """The share of a request.

    Attributes:
      bytes: what it has taken.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Takes bytes, if there is room."""
        if not self._room.take(size):
            return False
        self.bytes += size
        return True
