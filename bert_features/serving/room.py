"""Room: the memory that answers under way may take, until their clients have them."""

from contextlib import ExitStack


class Room:
    """A number of bytes that answers share; all calls come from one thread.

    Args:
      size: bytes. An answer alone is let in whatever its size.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0

    def take(self, size: int, until: ExitStack) -> bool:
        """Takes bytes until a stack is closed, if there is room.

        Returns:
          Whether there was room.
        """
        if self._taken and self._taken + size > self._size:
            return False
        self._taken += size
        until.callback(self._leave, size)
        return True

    def _leave(self, size: int) -> None:
        self._taken -= size
