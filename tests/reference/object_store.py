"""An object store for tests, as a driver of fsspec: `toy://bucket/name`.

Its files are those of fsspec's real drivers (AbstractBufferedFile), which fetch ranges of bytes.
"""

from fsspec.asyn import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile


class ServerError(Exception):
    """What a driver's own library raises: no OSError."""


class ObjectStore(AbstractFileSystem):
    """`files` (path -> bytes) and `failing` (path -> error) are the store; `fetched` counts bytes.

    `fails_late` holds paths whose information is there and whose content is not.
    """

    protocol = "toy"
    cachable = False
    files: dict[str, bytes] = {}  # noqa: RUF012 - one store, whatever instance asks
    failing: dict[str, Exception] = {}  # noqa: RUF012
    fails_late: set[str] = set()  # noqa: RUF012
    fetched: list[str] = []  # noqa: RUF012

    def info(self, path, **settings):
        path = self._strip_protocol(path)
        if path in self.failing and path not in self.fails_late:
            raise self.failing[path]
        if path in self.files:
            content = self.files[path]
            return {"name": path, "size": len(content), "type": "file", "etag": hash(content)}
        if any(name.startswith(f"{path}/") for name in self.files):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path, detail=True, **settings):
        path = self._strip_protocol(path)
        if path in self.failing:
            raise self.failing[path]
        if path in self.files:
            return [self.info(path)]
        below = {n.removeprefix(f"{path}/") for n in self.files if n.startswith(f"{path}/")}
        if not below:
            raise FileNotFoundError(path)
        entries = [self.info(f"{path}/{name}") for name in sorted({n.split("/")[0] for n in below})]
        return entries if detail else [entry["name"] for entry in entries]

    def _open(self, path, mode="rb", **settings):
        return _StoredFile(self, self._strip_protocol(path), mode)


class _StoredFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        if self.path in self.fs.failing:
            raise self.fs.failing[self.path]
        self.fs.fetched.append(self.path)
        return self.fs.files[self.path][start:end]
