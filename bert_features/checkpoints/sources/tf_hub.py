"""Handles of TF-Hub, on tfhub.dev or Kaggle, resolved by the library tensorflow_hub.

It downloads the archive of a SavedModel into its cache once, whole or not at all.
"""

import contextlib
import importlib
import os
import socket
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from bert_features import files
from bert_features.checkpoints.weights.file_names import SAVED_MODEL
from bert_features.errors import CheckpointError, MissingExtraError
from bert_features.files import cache_dir
from bert_features.machine.quiet_tensorflow import import_tensorflow

_HOSTS = {"tfhub.dev": "/", "www.kaggle.com": "/models/", "kaggle.com": "/models/"}
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_CACHE_VARIABLE = "TFHUB_CACHE_DIR"
# Seconds without a connection or a byte; the library itself waits without end.
_TIMEOUT = 60.0
_RESOLVING = threading.Lock()


def is_handle(name: str) -> bool:
    """Whether a name is a handle of TF-Hub, or the web address of a module's archive."""
    if not name.startswith(("https://", "http://")):
        return False
    try:
        address = urlsplit(name)
    except ValueError:  # http://[::
        return False
    if address.path.endswith(_ARCHIVES):
        return True
    start = _HOSTS.get(address.netloc.lower())
    return start is not None and address.path.startswith(start)


def names_of(handle: str) -> list[str]:
    """The parts of a handle that may be the name of its model, the last first."""
    return [part for part in reversed(urlsplit(handle).path.split("/")) if part]


def fetch(handle: str) -> str:
    """Resolves a handle by tensorflow_hub, which downloads the module if its cache lacks it.

    The result is the folder of the SavedModel in $TFHUB_CACHE_DIR, by default in this package's
    cache; or an address if tensorflow_hub is set to read from the store. Raises CheckpointError if
    the module cannot be downloaded or is not a SavedModel, and MissingExtraError.
    """
    hub = _import_tensorflow_hub()
    try:
        with _cache_and_timeout():
            folder: str = hub.resolve(handle)
    except Exception as error:  # urllib's, tarfile's, TensorFlow's, the system's
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if len(reason) <= 200 else f"{reason[:95]} … {reason[-100:]}"
        raise CheckpointError(
            f"cannot download {handle}: {reason}. Check the handle, which ends in a version, and "
            "the network; or unpack its archive elsewhere and pass the folder"
        ) from error
    if not files.is_url(folder) and not (Path(folder) / SAVED_MODEL).is_file():
        raise CheckpointError(
            f"{handle} is not a SavedModel: there is no {SAVED_MODEL} in {folder}; delete that "
            "folder to download it again"
        )
    return folder


def _import_tensorflow_hub() -> Any:
    tf = import_tensorflow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the age of what it imports
        try:
            return _import_without_pkg_resources("tensorflow_hub")
        except ImportError as error:
            minor = ".".join(tf.__version__.split(".")[:2])
            # pip would replace TensorFlow's TPU build by plain TensorFlow.
            install = f"--no-deps tensorflow-hub 'tf_keras=={minor}.*'"
            needed = f"a library that TF-Hub handles need ({error})"
            raise MissingExtraError(needed, install=install) from error


def _import_without_pkg_resources(name: str) -> Any:
    """Imports a module that needs `pkg_resources.parse_version`, with a stand-in if need be.

    setuptools has no pkg_resources since version 82. tensorflow_hub 0.16 uses it once, to compare
    TensorFlow's version with the lowest that it supports.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "pkg_resources":
            raise
    stand_in: Any = types.ModuleType("pkg_resources")
    stand_in.parse_version = Version
    sys.modules[stand_in.__name__] = stand_in
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules[stand_in.__name__]


@contextlib.contextmanager
def _cache_and_timeout() -> Iterator[None]:
    """Sets tensorflow_hub's cache, unless the user has set it, and the timeout of its sockets.

    Both belong to the whole process, so one thread at a time has them.
    """
    with _RESOLVING:
        timeout, chosen = socket.getdefaulttimeout(), os.environ.get(_CACHE_VARIABLE)
        os.environ[_CACHE_VARIABLE] = chosen or str(cache_dir() / "tfhub")
        socket.setdefaulttimeout(_TIMEOUT)
        try:
            yield
        finally:
            socket.setdefaulttimeout(timeout)
            if not chosen:
                del os.environ[_CACHE_VARIABLE]
