"""A folder of an object store, by the drivers of fsspec."""

import base64
import contextlib
import errno
import functools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from bert_features.errors import OutputError
from bert_features.files.addresses import connect
from bert_features.files.checksums import checksum_of_file
from bert_features.files.reporting import storage_errors
from bert_features.files.retrying import first_line, in_parallel, may_pass, retrying, status_of
from bert_features.files.staging import scratch_folder
from bert_features.files.store import Store

# A file of twice this size or more is uploaded in parts of it, some of them at a time; so this
# bounds the memory. S3 allows 10,000 parts.
PART_BYTES = 16 << 20
_TAKES_PARTS = frozenset({"s3", "s3a", "gs", "gcs"})
_KEPT = "finished shards are kept"
_NO_FILE = os.strerror(errno.ENOENT)


class ObjectStore(Store):
    """A folder at an address. An object appears by one completed upload or not at all.

    Calls are tried again after failures that may pass (`retrying`).

    Args:
      folder: its address.
    """

    folder: str

    def __init__(self, folder: str) -> None:
        self.folder = folder.rstrip("/")
        self._scheme = folder.partition("://")[0]

    def location(self, name: str) -> str:
        """The address of a file."""
        return f"{self.folder}/{name}"

    def names(self, inner: str = "") -> set[str]:
        """See `Store`; the empty set where there is nothing."""
        return set(self._list(inner))

    def exists(self, name: str) -> bool:
        """See `Store`."""
        try:
            self._info(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        """See `Store`."""
        size: int = self._info(name)["size"]
        return size

    def listed(self) -> "ObjectStore":
        """See `Store`."""
        return _ListedStore(self.folder, self._list(""))

    def read(self, name: str) -> bytes:
        """See `Store`."""
        content: bytes = self._call("cat_file", f"read {self.location(name)}", self._path(name))
        return content

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """See `Store`."""
        return in_parallel(self.read, names)

    def write(self, name: str, text: str) -> None:
        """See `Store`."""
        action = f"write {self.location(name)}"
        with storage_errors(action, advice=_KEPT):
            self._call("pipe_file", action, self._path(name), text.encode())

    def create(self, name: str, text: str) -> bool:
        """Writes a small file if there is none of this name; whether it did.

        Between several runs only one does, by a conditional request: in s3:// and gs://, and where
        the driver has one. A server may ignore the condition, so the last run may win instead.
        """
        if self.exists(name):
            return False
        action = f"write {self.location(name)}"
        try:
            self._call("pipe_file", action, self._path(name), text.encode(), mode="create")
        except FileExistsError:
            return False
        except NotImplementedError:
            self._call("pipe_file", action, self._path(name), text.encode())
        return True

    def remove(self, *names: str) -> None:
        """See `Store`."""
        for _ in in_parallel(self._remove, names):
            pass

    def remove_folder(self, inner: str) -> None:
        """See `Store`."""
        with contextlib.suppress(FileNotFoundError):
            action = f"remove {self.location(inner)}"
            self._call("rm", action, self._path(inner), recursive=True)

    def make_folder(self, inner: str) -> None:
        """Does nothing: an object store has no empty folders."""

    @contextlib.contextmanager
    def placing(self, name: str) -> Iterator[Path]:
        """A path in a temporary folder of this machine, whose files are then uploaded."""
        with scratch_folder() as folder:
            yield folder / name
            others = sorted({path.name for path in folder.iterdir()} - {name})
            for each in (*others, name):
                with storage_errors(f"write {self.location(each)}", advice=_KEPT):
                    self._upload(folder / each, each)

    @contextlib.contextmanager
    def fetched(self, *names: str) -> Iterator[Path]:
        """Copies in a temporary folder of this machine."""
        with scratch_folder() as folder:
            for name in names:
                action = f"read {self.location(name)}"
                self._call("get_file", action, self._path(name), str(folder / name))
            yield folder / names[0]

    def _upload(self, path: Path, name: str) -> None:
        """Uploads a file, and compares what the store says of it."""
        parts = {"chunksize": PART_BYTES} if self._scheme in _TAKES_PARTS else {}
        action = f"write {self.location(name)}"
        self._call("put_file", action, str(path), self._path(name), **parts)
        info, size = self._info(name), path.stat().st_size
        if info["size"] != size:
            raise OSError(errno.EIO, f"the store has {info['size']:,} of {size:,} bytes")
        crc32c = info.get("crc32c")  # of Google Cloud Storage
        if crc32c and base64.b64decode(crc32c).hex() != checksum_of_file(path):
            raise OSError(errno.EIO, "the store has other bytes than were sent")

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call("rm_file", f"remove {self.location(name)}", self._path(name))

    def _list(self, inner: str) -> dict[str, int]:
        """The size of each file; of a folder 0."""
        path = self._path(inner)
        try:
            entries = self._call("ls", f"read {self.folder}", path, detail=True)
        except FileNotFoundError:
            self._check_bucket()
            return {}
        found = {entry["name"].rstrip("/"): entry["size"] or 0 for entry in entries}
        if list(found) == [path] and entries[0]["type"] == "file" and entries[0]["size"]:
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder")
        # An empty object may stand in the place of a folder.
        return {name.removeprefix(f"{path}/"): size for name, size in found.items() if name != path}

    def _info(self, name: str) -> Mapping[str, Any]:
        action = f"look up {self.location(name)}"
        info: Mapping[str, Any] = self._call("info", action, self._path(name))
        return info

    def _check_bucket(self) -> None:
        """Refuses a bucket that is not there."""
        bucket = self._path("").lstrip("/").partition("/")[0]
        if self._scheme not in _TAKES_PARTS:
            return
        try:
            self._call("info", f"look up {bucket}", bucket)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, f"there is no bucket {bucket}; create it, or name another"
            ) from None

    @functools.cached_property
    def _connection(self) -> tuple[Any, str]:
        # It logs each failure with its traceback, also of those that are tried again.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        filesystem, path = connect(self.folder, OutputError)
        return filesystem, path.rstrip("/")

    def _path(self, name: str) -> str:
        """What the driver calls a file; the folder, if the name is empty."""
        root = self._connection[1]
        return f"{root}/{name}" if name else root

    def _call(self, method: str, action: str, *arguments: Any, **options: Any) -> Any:
        filesystem, _ = self._connection
        filesystem.invalidate_cache()  # of listings
        call = functools.partial(getattr(filesystem, method), *arguments, **options)
        try:
            return retrying(call, action)
        except Exception as problem:
            creates = options.get("mode") == "create"
            self._raise(problem, writes=action.startswith("write"), creates=creates)

    def _raise(self, problem: Exception, *, writes: bool, creates: bool) -> NoReturn:
        """Raises a driver's error as the OSError that a disk would raise."""
        status, text = status_of(problem), first_line(problem)
        if isinstance(problem, MemoryError):
            raise problem
        if isinstance(problem, FileExistsError) or status == 412:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from problem
        if isinstance(problem, FileNotFoundError) or status == 404:
            if writes:
                self._check_bucket()
            raise FileNotFoundError(errno.ENOENT, _NO_FILE) from problem
        if _is_refusal(problem, status):
            raise PermissionError(
                errno.EACCES, f"no permission ({text}); check the credentials and their rights"
            ) from problem
        if creates and (status == 501 or isinstance(problem, NotImplementedError)):
            raise NotImplementedError(text) from problem
        if may_pass(problem):
            text = f"the server does not answer or is busy ({text}); check the network, try later"
        raise OSError(errno.EIO, text) from problem


class _ListedStore(ObjectStore):
    """A store whose sizes are those of a listing."""

    def __init__(self, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(folder)
        self._sizes = sizes

    def size(self, name: str) -> int:
        """See `Store`."""
        if name not in self._sizes:
            raise FileNotFoundError(errno.ENOENT, _NO_FILE)
        return self._sizes[name]


def _is_refusal(problem: Exception, status: int | None) -> bool:
    names = {kind.__name__ for kind in type(problem).__mro__}
    return (
        isinstance(problem, PermissionError)
        or status in (401, 403)
        or "NoCredentialsError" in names
        or "GoogleAuthError" in names
        or str(problem).startswith("Forbidden")  # of gcsfs
    )
