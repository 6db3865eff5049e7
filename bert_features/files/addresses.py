"""Addresses of object stores and servers (gs://, s3://, memory://, https://), opened by fsspec."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_features.errors import BertFeaturesError, ConfigError, MissingExtraError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_LOCAL = re.compile(r"^(file|local)://")
# Schemes whose driver an extra of this package brings.
_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
# Packages that fsspec's own drivers need.
_NEEDS = {"http": "aiohttp", "https": "aiohttp", "sftp": "paramiko", "ssh": "paramiko"}


def is_url(path: str | Path) -> bool:
    """Whether a path is an address of a server or an object store; `file://` is a local path."""
    path = str(path)
    return _SCHEME.match(path) is not None and _LOCAL.match(path) is None


def path_as_given(path: str | Path) -> Path:
    """A local path without `file://` if it has it, for names that users see."""
    return Path(_LOCAL.sub("", str(path), count=1))


def local_path(path: str | Path) -> Path:
    """A local path, without `file://`; absolute, so that it means one file wherever it is used.

    Links and `..` stay. Raises BertFeaturesError if it is relative to a folder that was deleted.
    """
    named = path_as_given(path)
    try:
        return named.absolute()
    except FileNotFoundError as error:
        raise BertFeaturesError(
            f"{named} is relative to the working folder, which was deleted; change to another"
        ) from error


def is_there(path: str | Path) -> bool:
    """Whether a local path leads to something."""
    # Not by `Path`, which raises for a name that is too long.
    with contextlib.suppress(BertFeaturesError):  # of a deleted folder
        return os.path.exists(local_path(path))  # noqa: PTH110
    return False


def connect(url: str, error: type[BertFeaturesError]) -> tuple[Any, str]:
    """The fsspec file system of an address (see `is_url`), and the path in it.

    Raises:
      BertFeaturesError: of the class `error`; the server cannot be reached.
      ConfigError: the scheme (what is before `://`) is unknown.
      MissingExtraError: the driver of the scheme is not installed.
    """
    import fsspec
    from fsspec.core import url_to_fs

    scheme = url.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as problem:
        raise _missing_driver(scheme, problem) from problem
    except ValueError as problem:
        raise ConfigError(
            f"{url}: {scheme}:// is unknown; allowed: a path, or an address such as "
            "gs://bucket/file or s3://bucket/file"
        ) from problem
    with remote_errors(url, error):
        filesystem, path = url_to_fs(url)
        filesystem.invalidate_cache()  # of listings: what an earlier call saw may be old
        return filesystem, path


@contextlib.contextmanager
def remote_errors(url: str, error: type[BertFeaturesError]) -> Iterator[None]:
    """Turns any error of a driver into one error that names the address."""
    # Drivers raise errors of the libraries below them (aiohttp, botocore), without a common base.
    try:
        yield
    except (BertFeaturesError, MemoryError):
        raise
    except Exception as problem:
        raise error(f"cannot read {url}: {_remote_reason(problem)}") from problem


def _remote_reason(problem: Exception) -> str:
    text = " ".join(str(problem).split())[:200] or type(problem).__name__
    strerror = getattr(problem, "strerror", None)
    if isinstance(problem, FileNotFoundError):
        return strerror or "no such file"
    refused = "no permission: " if isinstance(problem, PermissionError) else ""
    return f"{refused}{strerror or text}"


def _missing_driver(scheme: str, problem: ImportError) -> MissingExtraError:
    from fsspec.registry import known_implementations

    module = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    package = _NEEDS.get(scheme, module)
    if package in ("", "fsspec"):
        return MissingExtraError(f"a package for {scheme}:// ({problem})", install="fsspec[full]")
    named = f"{package}, which opens {scheme}:// addresses,"
    if scheme in _EXTRAS:
        return MissingExtraError(named, _EXTRAS[scheme])
    return MissingExtraError(named, install=package)
