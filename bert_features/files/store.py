"""Stores: a folder of files, on a disk or at an address, behind one small interface.

Files appear whole or not at all. Methods raise the OSError of the disk, or one that says the same
of a server: FileNotFoundError, PermissionError; `storage_errors` makes a message of it.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from bert_features.files.addresses import is_url, local_path

# A file or a folder: a path of this machine, or an address as text.
Location: TypeAlias = Path | str


def locate(place: str | Path) -> Location:
    """A path, or an address without `/` at its end, of what a user has named."""
    return str(place).rstrip("/") if is_url(place) else local_path(place)


def name_of(location: Location) -> str:
    """The last part of a path or an address."""
    return location.name if isinstance(location, Path) else PurePosixPath(location).name


class Store(ABC):
    """A folder of files; each is named by its place in it, as `a.json` or `.finished/a.json`.

    Attributes:
      folder: the folder: its path, or its address without `/` at its end.
    """

    folder: Location

    @abstractmethod
    def location(self, name: str) -> Location:
        """The path or the address of a file, for messages and for users."""

    @abstractmethod
    def names(self, inner: str = "") -> set[str]:
        """The names of files and folders in the folder, or in a folder in it.

        Raises:
          FileNotFoundError: there is none. An object store has no empty folders: there it is the
            empty set.
          NotADirectoryError: it is a file.
        """

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""

    @abstractmethod
    def size(self, name: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def listed(self) -> "Store":
        """The same, where sizes come from one listing if that costs less than to ask for each."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a small file."""

    @abstractmethod
    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """The contents of many small files, in order."""

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Writes a small file whole, or leaves it as it was.

        Raises:
          OutputError: it cannot be written.
        """

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Removes files; those that are not there count as removed."""

    @abstractmethod
    def remove_folder(self, inner: str) -> None:
        """Removes a folder in the folder with all that is in it; it need not be there."""

    @abstractmethod
    def make_folder(self, inner: str) -> None:
        """Makes a folder in the folder, if it is not there."""

    @abstractmethod
    def placing(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A path to write a file at, with files that belong to it beside it.

        They are in their places when the block ends without an exception: the file itself last.

        Raises:
          OutputError: they cannot be put there.
        """

    @abstractmethod
    def fetched(self, *names: str) -> contextlib.AbstractContextManager[Path]:
        """The path of the first of these files on this machine, with the others beside it.

        A copy is gone when the block ends.
        """
