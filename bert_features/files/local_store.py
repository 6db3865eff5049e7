"""Folders of this machine as stores, and the choice of the store of a folder."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_features.files.addresses import is_url, local_path
from bert_features.files.object_store import ObjectStore
from bert_features.files.staging import write_whole
from bert_features.files.store import Store


def open_store(folder: str | Path) -> Store:
    """The store of a folder, which need not exist; nothing is asked of a server yet."""
    if is_url(folder):
        return ObjectStore(str(folder))
    return LocalStore(local_path(folder))


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
            if path.is_dir():  # the hidden folder of a killed run
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove_folder(self, inner: str) -> None:
        """See `Store`."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder / inner)

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
