"""Stores: a folder of files, on a disk or at an address, behind one small interface.

Files appear whole or not at all. Methods raise the OSError of the disk, or one that says the same
of a server: FileNotFoundError, PermissionError; `storage_errors` makes a message of it.
"""

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from bert_features.files.addresses import is_url, local_path
from bert_features.files.staging import write_whole

# A file or a folder: a path of this machine, or an address as text.
Location: TypeAlias = Path | str


def locate(place: str | Path) -> Location:
    """A path, or an address without `/` at its end, of what a user has named."""
    return str(place).rstrip("/") if is_url(place) else local_path(place)


def name_of(location: Location) -> str:
    """The last part of a path or an address."""
    return location.name if isinstance(location, Path) else PurePosixPath(location).name


def open_store(folder: str | Path) -> "Store":
    """The store of a folder, which need not exist."""
    return LocalStore(local_path(folder))


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
        """Removes files, and folders with all that is in them; those that are gone count too."""

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


class LocalStore(Store):
    """A folder of this machine.

    Args:
      folder: its path.
    """

    folder: Path

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def location(self, name: str) -> Path:
        """The path of a file."""
        return self.folder / name

    def names(self, inner: str = "") -> set[str]:
        """See `Store`."""
        return set(os.listdir(self.folder / inner))  # noqa: PTH208 - no paths are needed

    def exists(self, name: str) -> bool:
        """See `Store`."""
        return (self.folder / name).exists()

    def size(self, name: str) -> int:
        """See `Store`."""
        return (self.folder / name).stat().st_size

    def listed(self) -> "LocalStore":
        """See `Store`."""
        return self

    def read(self, name: str) -> bytes:
        """See `Store`."""
        return (self.folder / name).read_bytes()

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """See `Store`."""
        return map(self.read, names)

    def write(self, name: str, text: str) -> None:
        """See `Store`."""
        write_whole(self.folder / name, text)

    def remove(self, *names: str) -> None:
        """See `Store`."""
        for path in map(self.folder.joinpath, names):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def make_folder(self, inner: str) -> None:
        """See `Store`."""
        (self.folder / inner).mkdir(exist_ok=True)

    @contextlib.contextmanager
    def placing(self, name: str) -> Iterator[Path]:
        """The path itself: a features file is put there whole by its writer."""
        yield self.folder / name

    @contextlib.contextmanager
    def fetched(self, *names: str) -> Iterator[Path]:
        """The path itself."""
        yield self.folder / names[0]
