"""Object stores as folders: by a real S3 server, a server of Google Cloud Storage, and memory."""

import contextlib
import errno
import os
from pathlib import Path
from urllib.error import HTTPError

import pytest

from bert_features.errors import OutputError
from bert_features.files import is_writing, open_store
from bert_features.files import store as stores
from tests.s3_server import BREAK, BUSY, DENIED


@pytest.fixture(params=["s3", "gs", "memory"])
def store(request):
    if request.param == "memory":
        import fsspec

        fsspec.filesystem("memory").store.clear()
        return open_store("memory://files/store/")
    server = request.getfixturevalue(request.param)
    return open_store(f"{server if request.param == 'gs' else server.bucket}/run/")


def test_files_are_written_read_listed_and_removed(store):
    assert store.names() == set()
    assert not store.exists("a.json")
    store.write("a.json", "ä")
    store.write("a.json", "äöü")
    store.write(".finished/0.json", "0")
    store.write(".finished/1.json", "1")
    assert store.names() == {"a.json", ".finished"}
    assert store.names(".finished") == {"0.json", "1.json"}
    assert store.exists(".finished")
    assert store.read("a.json") == "äöü".encode()
    assert list(store.read_all([".finished/1.json", ".finished/0.json"])) == [b"1", b"0"]
    assert store.size("a.json") == store.listed().size("a.json") == 6
    store.remove(".finished")
    store.remove(".finished", "a.json", "absent")
    assert store.names() == set()


def test_a_name_with_the_signs_of_a_pattern_removes_itself_alone(store):
    for folder in ("a[12]", "a1", "a*"):
        inner = open_store(f"{store.folder}/{folder}/")
        inner.write(".finished/0.json", "0")
        inner.write("b?", "1")
    bc = open_store(f"{store.folder}/a[12]/")
    bc.write("bc", "2")
    bc.remove(".finished", "b?")
    assert bc.names() == {"bc"}
    assert open_store(f"{store.folder}/a1/").names() == {".finished", "b?"}
    store.remove("a*")
    assert store.names() == {"a[12]", "a1"}


def test_what_is_not_there_is_not_found(store):
    for read in (store.read, store.size, store.listed().size):
        with pytest.raises(FileNotFoundError, match="No such file"):
            read("absent")


def test_files_are_placed_and_fetched_with_those_beside_them(store):
    content = os.urandom(100_000)
    with store.placing("part") as path:
        path.write_bytes(content)
        path.with_name("part.metadata.json").write_bytes(b"{}")
        assert store.names() == set()
    assert store.names() == {"part", "part.metadata.json"}
    with store.fetched("part", "part.metadata.json") as path:
        assert path.read_bytes() == content
        assert path.with_name("part.metadata.json").read_bytes() == b"{}"
        assert is_writing()  # a process that is ended removes it first
    assert not path.parent.exists()
    assert not is_writing()


def test_nothing_is_placed_after_an_error(store):
    with contextlib.suppress(ZeroDivisionError), store.placing("part") as path:
        path.write_bytes(b"12345")
        _ = 1 / 0
    assert store.names() == set()
    assert not path.parent.exists()


@pytest.mark.parametrize("store", ["s3", "gs"], indirect=True)
def test_a_missing_bucket_is_named(store):
    absent = open_store(f"{store.folder.partition(':')[0]}://no-such-bucket/run/")
    with pytest.raises(FileNotFoundError, match="no bucket no-such-bucket"):
        absent.names()
    message = r"^cannot write .*://no-such-bucket/run/a: there is no bucket no-such-bucket; create"
    with pytest.raises(OutputError, match=message):
        absent.write("a", "text")
    with pytest.raises(OutputError, match=message), absent.placing("a") as path:
        path.write_bytes(b"1")


def test_a_file_is_no_folder(store):
    store.write("a", "text")
    with pytest.raises(NotADirectoryError, match="it is a file"):
        open_store(f"{store.folder}/a/").names()


def test_a_large_file_is_uploaded_in_parts(s3, monkeypatch):
    monkeypatch.setattr(stores, "PART_BYTES", 5 << 20)
    store = open_store(f"{s3.bucket}/run")
    content = os.urandom(11 << 20)
    with store.placing("part") as path:
        path.write_bytes(content)
    assert [method for method, _ in s3.requests].count("PUT") == 3
    assert store.read("part") == content


@pytest.mark.parametrize("size", [1000, 11 << 20])
def test_an_upload_that_is_broken_off_leaves_nothing(s3, monkeypatch, size):
    monkeypatch.setattr(stores, "PART_BYTES", 5 << 20)
    store, puts = open_store(f"{s3.bucket}/run"), []

    def fail(method, path):
        puts.extend([path] if method == "PUT" else [])
        return BREAK if method == "PUT" and len(puts) > (size > 1000) else None

    s3.fail = fail
    message = f"^cannot write {store.folder}/part: .+; finished shards are kept"
    with pytest.raises(OutputError, match=message) as caught, store.placing("part") as path:
        path.write_bytes(b"x" * size)
    assert "\n" not in str(caught.value)
    assert len(puts) > 1
    s3.fail = lambda method, path: None
    assert store.names() == set()
    with store.placing("part") as path:
        path.write_bytes(b"x" * size)
    assert store.size("part") == size


def test_a_busy_server_is_asked_again(s3):
    store, left = open_store(f"{s3.bucket}/run"), [BUSY]
    s3.fail = lambda method, path: left.pop() if left else None
    store.write("a", "text")
    assert not left
    assert store.read("a") == b"text"


def test_a_server_that_stays_busy_is_an_error(s3):
    s3.fail = lambda method, path: BUSY
    store = open_store(f"{s3.bucket}/run")
    with pytest.raises(OSError, match=r"Service Unavailable|reduce your rate"):
        store.read("a")


def test_no_permission_is_said_at_once(s3):
    s3.fail = lambda method, path: DENIED if method == "PUT" else None
    store = open_store(f"{s3.bucket}/run")
    message = rf"^cannot write {store.folder}/a: no permission \(Access Denied.*\); check the cred"
    with pytest.raises(OutputError, match=message):
        store.write("a", "text")
    assert [method for method, _ in s3.requests] == ["PUT"]


def test_a_store_that_keeps_other_bytes_is_noticed(s3, monkeypatch):
    store = open_store(f"{s3.bucket}/run")
    for info, reason in (
        ({"size": 3}, "the store has 3 of 5 bytes"),
        ({"size": 5, "crc32c": "AAAAAA=="}, "the store has other bytes than were sent"),
    ):
        monkeypatch.setattr(store, "_info", lambda name, info=info: info)
        with pytest.raises(OutputError, match=reason), store.placing("a") as path:
            path.write_bytes(b"12345")


def test_a_folder_of_this_machine_is_used_in_place(tmp_path):
    store = open_store(tmp_path)
    with store.placing("a") as path:
        path.write_bytes(b"1")
    with store.fetched("a") as path:
        assert path == tmp_path / "a" == store.location("a")
    assert open_store(f"file://{tmp_path}/").location("a") == Path(tmp_path / "a")


class NoCredentialsError(Exception):
    """As botocore has it."""


@pytest.mark.parametrize(
    ("problem", "number", "text"),
    [
        (FileNotFoundError("b/a"), errno.ENOENT, "No such file"),
        (PermissionError(errno.EACCES, "Denied"), errno.EACCES, r"no permission \(Denied\)"),
        (NoCredentialsError("none\nfound"), errno.EACCES, r"no permission \(none found\)"),
        (HTTPError("u", 401, "Unauthorized", {}, None), errno.EACCES, "no permission .*401"),
        (RuntimeError("Forbidden: b"), errno.EACCES, "no permission .*Forbidden"),
        (HTTPError("u", 503, "Busy", {}, None), errno.EIO, "503"),
        (RuntimeError(), errno.EIO, "RuntimeError"),
    ],
    ids=str,
)
def test_errors_of_drivers_become_those_of_a_disk(problem, number, text):
    with pytest.raises(OSError, match=text) as raised, stores._os_errors():
        raise problem
    assert raised.value.errno == number
