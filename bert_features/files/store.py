"""Stores: a folder of files, on a disk or at an address, behind one small interface."""

import base64
import contextlib
import errno
import functools
import glob
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar

from bert_features.errors import BertFeaturesError, OutputError
from bert_features.files.addresses import connect, is_url, local_path
from bert_features.files.checksums import checksum_of_file
from bert_features.files.reporting import storage_errors
from bert_features.files.staging import replacing, scratch_folder, write_whole

# A file or a folder: a path of this machine, or an address as text.
Location: TypeAlias = Path | str

# A file of twice this size or more is uploaded in parts of it, some of them at a time; so this
# bounds the memory. S3 allows 10,000 parts.
PART_BYTES = 16 << 20
_HAVE_BUCKETS = ("s3://", "s3a://", "gs://", "gcs://")
# Calls at a time: a server answers after some ten milliseconds.
_AT_A_TIME = 16
_KEPT = "finished shards are kept"

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def locate(place: str | Path) -> Location:
    """A path, or an address without `/` at its end, of what a user has named."""
    return str(place).rstrip("/") if is_url(place) else local_path(place)


def name_of(location: Location) -> str:
    """The last part of a path or an address."""
    return location.name if isinstance(location, Path) else PurePosixPath(location).name


def open_store(folder: str | Path) -> "Store":
    """The store of a folder, which need not exist; nothing is asked of a server yet."""
    return Store(locate(folder))


def in_parallel(call: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of a call for each item, in order; many are asked for at a time."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(call, items)


class Store:
    """A folder of files; each is named by its place in it, as `a.json` or `.finished/a.json`.

    A file appears whole or not at all: on a disk by a rename, at an address by one completed
    upload. The drivers of fsspec repeat requests after failures that may pass. Methods raise the
    OSError of the disk, or one that says the same of a server: FileNotFoundError, PermissionError;
    `storage_errors` makes a message of it.

    Attributes:
      folder: the folder: its path, or its address without `/` at its end.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self._sizes: Mapping[str, int] | None = None

    def location(self, name: str) -> Location:
        """The path or the address of a file, for messages and for users."""
        return self.folder / name if isinstance(self.folder, Path) else f"{self.folder}/{name}"

    def names(self, inner: str = "") -> set[str]:
        """The names of files and folders in the folder, or in a folder in it.

        Raises:
          FileNotFoundError: there is none. An object store has no empty folders: there it is the
            empty set.
          NotADirectoryError: it is a file.
        """
        if isinstance(self.folder, Path):
            return set(os.listdir(self.folder / inner))  # noqa: PTH208 - no paths are needed
        return set(self._list(inner))

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""
        try:
            self._info(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        if self._sizes is None:
            size: int = self._file_info(name)["size"]
            return size
        if name not in self._sizes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._sizes[name]

    def listed(self) -> "Store":
        """The same; at an address, sizes come from one listing."""
        if isinstance(self.folder, Path):
            return self
        other = Store(self.folder)
        other._sizes = self._list("")
        return other

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        if isinstance(self.folder, Path):
            self._file_info(name)
        with self._driver() as files:
            content: bytes = files.cat_file(name)
            return content

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """The contents of many small files, in order."""
        return in_parallel(self.read, names)

    def write(self, name: str, text: str) -> None:
        """Writes a small file whole, or leaves it as it was and raises OutputError."""
        if isinstance(self.folder, Path):
            write_whole(self._own(name), text)
            return
        with self._writing(name), self._driver() as files:
            files.pipe_file(name, text.encode())

    def create(self, name: str, text: str) -> bool:
        """Writes a small file whole if there is none; whether it did.

        Of several machines that do so at once one succeeds, where the store writes on condition, as
        disks, S3 and Google Cloud Storage do.
        """
        try:
            if isinstance(self.folder, Path):
                with replacing(self._own(name), overwrite=False) as new:
                    new.write_text(text, encoding="utf-8")
            else:
                with self._writing(name), self._driver() as files:
                    files.pipe_file(name, text.encode(), mode="create")
        except OutputError:
            if self.exists(name):
                return False
            self.write(name, text)  # of a store that refuses conditions; its own errors come again
        return True

    def remove(self, *names: str) -> None:
        """Removes files and folders; those that are not there count as removed."""
        for _ in in_parallel(self._remove, names):
            pass

    def make_folder(self, inner: str) -> None:
        """Makes a folder in the folder, if it is not there; object stores need none."""
        if isinstance(self.folder, Path):
            self._own(inner).mkdir(exist_ok=True)

    @contextlib.contextmanager
    def placing(self, name: str) -> Iterator[Path]:
        """A path to write a file at, with files that belong to it beside it.

        On a disk the path is its place, as its writer puts it there whole. Else they are uploaded
        when the block ends without an exception: the file itself last. Raises OutputError if they
        cannot be.
        """
        if isinstance(self.folder, Path):
            yield self._own(name)
            return
        with scratch_folder() as folder:
            yield folder / name
            others = sorted({path.name for path in folder.iterdir()} - {name})
            for each in (*others, name):
                with self._writing(each):
                    self._upload(folder / each, each)

    @contextlib.contextmanager
    def fetched(self, *names: str) -> Iterator[Path]:
        """The path of the first of these files on this machine, with the others beside it.

        A copy is gone when the block ends.
        """
        if isinstance(self.folder, Path):
            yield self.folder / names[0]
            return
        with scratch_folder() as folder:
            for name in names:
                with self._driver() as files:
                    files.get_file(name, str(folder / name))
            yield folder / names[0]

    def _own(self, name: str) -> Path:
        """The path of a file to write; it refuses a link, which may lead out of the folder."""
        path = Path(self.folder)
        for part in PurePosixPath(name).parts:
            path /= part
            if path.is_symlink():
                raise OutputError(
                    f"cannot write {path}: it is a symbolic link, which may lead out of the "
                    "folder; remove it"
                )
        return path

    def _upload(self, path: Path, name: str) -> None:
        """Uploads a file, and compares what the store says of it."""
        parts = {"chunksize": PART_BYTES} if self._has_buckets else {}
        with self._driver() as files:
            files.put_file(str(path), name, **parts)
        info, size = self._info(name), path.stat().st_size
        if info["size"] != size:
            raise OSError(errno.EIO, f"the store has {info['size']:,} of {size:,} bytes")
        crc32c = info.get("crc32c")  # of Google Cloud Storage
        if crc32c and base64.b64decode(crc32c).hex() != checksum_of_file(path):
            raise OSError(errno.EIO, "the store has other bytes than were sent")

    def _remove(self, name: str) -> None:
        path = self.location(name)
        with contextlib.suppress(FileNotFoundError), self._driver() as files:
            if not isinstance(path, Path):  # the drivers of servers take a path for a pattern
                files.fs.rm(glob.escape(f"{files.path}/{name}"), recursive=True)
            elif path.is_symlink():
                path.unlink()
            else:
                files.rm(name, recursive=True)

    def _list(self, inner: str) -> dict[str, int]:
        """The size of each file; of a folder 0."""
        try:
            with self._driver() as files:
                entries = files.ls(inner, detail=True)
        except FileNotFoundError:
            self._check_bucket()
            return {}
        sizes = {PurePosixPath(entry["name"]): entry["size"] or 0 for entry in entries}
        # An empty object may stand in the place of a folder.
        if sizes.pop(PurePosixPath(inner), 0) and not sizes:
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder")
        return {path.name: size for path, size in sizes.items()}

    def _info(self, name: str) -> Mapping[str, Any]:
        with self._driver() as files:
            info: Mapping[str, Any] = files.info(name)
            return info

    def _file_info(self, name: str) -> Mapping[str, Any]:
        """The same; it refuses a pipe, which would keep a reader waiting, and a device."""
        info = self._info(name)
        if info["type"] == "other":
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
        return info

    @property
    def _has_buckets(self) -> bool:
        return str(self.folder).startswith(_HAVE_BUCKETS)

    def _check_bucket(self) -> None:
        """Refuses a bucket that is not there."""
        if not self._has_buckets:
            return
        bucket = str(self.folder).partition("://")[2].partition("/")[0]
        try:
            with self._driver() as files:
                files.fs.info(bucket)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, f"there is no bucket {bucket}; create it, or name another"
            ) from None

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Reports failures of an upload; a missing bucket by its name."""
        with storage_errors(f"write {self.location(name)}", advice=_KEPT):
            try:
                yield
            except FileNotFoundError:
                self._check_bucket()
                raise

    @contextlib.contextmanager
    def _driver(self) -> Iterator[Any]:
        """The folder as a file system of fsspec, whose errors become those of a disk."""
        if isinstance(self.folder, Path):
            yield self._files
            return
        with _os_errors():
            self._files.fs.invalidate_cache()  # of listings
            yield self._files

    @functools.cached_property
    def _files(self) -> Any:
        from fsspec.implementations.dirfs import DirFileSystem

        # It logs each failure with its traceback, also of calls that are repeated.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        if isinstance(self.folder, Path):
            from fsspec.implementations.local import LocalFileSystem

            return DirFileSystem(os.path.abspath(self.folder), LocalFileSystem())  # noqa: PTH100
        filesystem, path = connect(self.folder, OutputError)
        return DirFileSystem(path.rstrip("/"), filesystem)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raises a driver's error as the OSError that a disk would raise."""
    try:
        yield
    except (BertFeaturesError, MemoryError):
        raise
    except FileNotFoundError as problem:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from problem
    except Exception as problem:
        text = " ".join(str(getattr(problem, "strerror", None) or problem).split())[:200]
        text = text or type(problem).__name__
        if _is_refusal(problem):
            raise PermissionError(
                errno.EACCES, f"no permission ({text}); check the credentials and their rights"
            ) from problem
        raise OSError(errno.EIO, text) from problem


def _is_refusal(problem: Exception) -> bool:
    names = {kind.__name__ for kind in type(problem).__mro__}
    return (
        isinstance(problem, PermissionError)
        or "NoCredentialsError" in names
        or "GoogleAuthError" in names
        or getattr(problem, "code", None) == 401
        or str(problem).startswith("Forbidden")  # of gcsfs
    )
