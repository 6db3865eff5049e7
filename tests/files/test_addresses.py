"""Addresses: which paths are one, and errors of drivers in one line."""

import shutil
import sys
from pathlib import Path

import pytest

from bert_features import files
from bert_features.errors import BertFeaturesError, CheckpointError, MissingExtraError
from tests.reference.object_store import ServerError


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gs://bucket/file", True),
        ("s3://bucket/file", True),
        ("memory://a", True),
        ("https://host/file", True),
        ("file:///a/b", False),
        ("local:///a/b", False),
        ("/a/b", False),
        ("a:b.txt", False),
        ("notes::x", False),
        ("simplecache::gs://bucket/file", False),
        ("GS://bucket/file", False),
        ("./gs://x", False),
        ("-", False),
    ],
)
def test_what_is_an_address(path, expected):
    assert files.is_url(path) is expected


def test_local_addresses_are_paths():
    assert str(files.local_path("file:///a/b")) == "/a/b"
    assert str(files.local_path("/a/file:///b")) == "/a/file:/b"


def test_a_path_is_absolute_and_an_address_stays(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f").touch()
    monkeypatch.chdir(folder)
    assert files.local_path("../folder/f") == folder / ".." / "folder" / "f"
    assert files.locate("gs://bucket/f/") == "gs://bucket/f"
    assert files.is_there("f")
    shutil.rmtree(folder)
    assert files.local_path("/f") == Path("/f")
    assert not files.is_there("f")
    with pytest.raises(BertFeaturesError, match="f is relative"):
        files.local_path("f")


@pytest.mark.parametrize(
    ("scheme", "module", "message"),
    [
        ("gs", "gcsfs", r"^gcsfs, which opens gs://.* pip install .*\[gcs\]'$"),
        ("s3", "s3fs", r"^s3fs, which opens s3://.* pip install .*\[s3\]'$"),
        ("az", "adlfs", r"^adlfs, which opens az://.* pip install adlfs$"),
        ("https", "aiohttp", r"^aiohttp, which opens https://.* pip install aiohttp$"),
    ],
)
def test_a_missing_driver_is_named_with_the_line_that_installs_it(
    monkeypatch, scheme, module, message
):
    from fsspec.registry import _registry

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    _registry.pop(scheme, None)
    with pytest.raises(MissingExtraError, match=message):
        files.connect(f"{scheme}://bucket/file", CheckpointError)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (FileNotFoundError("/b/name"), "cannot read toy://b/name"),
        (PermissionError("Access\nDenied"), "no permission"),
        (PermissionError(13, "Permission denied"), "no permission"),
        (OSError(5, "Input/output error"), "name: Input/output error"),
        (ServerError("no credentials"), "name: no credentials"),
        (ServerError(), "name: ServerError"),
    ],
)
def test_errors_of_drivers(problem, message):
    with (
        pytest.raises(CheckpointError, match=message) as caught,
        files.remote_errors("toy://b/name", CheckpointError),
    ):
        raise problem
    assert "\n" not in str(caught.value)
