"""The cache of downloads: filled once, verified, shared; and names that fill it."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from typer.testing import CliRunner

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.sources.download import Record, download, find, url_of, verify
from bert_features.checkpoints.sources.published import BASE_OF_2020, PUBLISHED
from bert_features.cli import app
from bert_features.errors import CheckpointError, ConfigError
from bert_features.files import cache_dir
from tests.reference.file_server import breaks_off_after, stalls_after, status
from tests.reference.published_archive import (
    ARCHIVE,
    DATA,
    FILES,
    OTHER,
    RANDOM,
    read_folder,
    zipped,
)

TINY = "uncased_L-2_H-128_A-2"
PATH = f"/models/2020_02_20/{TINY}.zip"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(folder))
    return folder


@pytest.fixture
def server(file_server, cache, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_MIRROR", file_server.url)
    file_server.files[PATH] = ARCHIVE
    return file_server


def left(cache):
    """What lies in the cache, but for the empty lock."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


# ---- downloading


def test_download(server, cache):
    assert find("bert-tiny") is None
    seen = []
    folder = download("bert-tiny", progress=lambda done, total: seen.append((done, total)))
    assert folder == cache / TINY == find("bert-tiny") == find(TINY)
    assert read_folder(folder) == FILES
    assert left(cache) == [TINY, f"{TINY}.json"]
    assert server.asked[0]["Accept-Encoding"] == "identity"
    assert seen[0] == (0, len(ARCHIVE))
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    record = json.loads((cache / f"{TINY}.json").read_text())
    assert record["url"] == f"{server.url}/2020_02_20/{TINY}.zip"
    assert record["sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert record["size"] == len(ARCHIVE)
    assert record["files"][DATA] == {
        "size": 1_000_000,
        "sha256": hashlib.sha256(RANDOM).hexdigest(),
    }
    assert record["files"].keys() == FILES.keys()
    assert download(TINY) == folder
    assert len(server.asked) == 1


def test_a_complete_partial_file_is_not_sent_again(server, cache, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bert_features.checkpoints.sources.download.unpack", full)
        message = "cannot write .*: No space left on device; set BERT_FEATURES_CACHE"
        with pytest.raises(CheckpointError, match=message):
            download(TINY)
    assert left(cache) == [f"{TINY}.zip.partial"]
    assert read_folder(download(TINY)) == FILES
    assert server.sent == [len(ARCHIVE), 0]


def test_addresses(cache, monkeypatch):
    row = PUBLISHED[TINY]
    monkeypatch.delenv("BERT_FEATURES_MIRROR", raising=False)
    assert url_of(row) == f"https://storage.googleapis.com/bert_models/2020_02_20/{TINY}.zip"
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "https://mirror.example/bert/")
    assert url_of(row) == f"https://mirror.example/bert/2020_02_20/{TINY}.zip"
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "file:///etc")
    with pytest.raises(
        ConfigError, match="BERT_FEATURES_MIRROR is 'file:///etc'; allowed: an http"
    ):
        download(TINY)


def test_a_file_that_changed_between_two_runs_is_not_used(server, cache):
    """Its parts do not pass the checksums of the archive."""
    server.script = [breaks_off_after(300_000), *[status(503)] * 5]
    with pytest.raises(CheckpointError, match="are kept"):
        download(TINY)
    server.files[PATH] = zipped((FILES | {DATA: RANDOM[::-1]}).items())
    with pytest.raises(CheckpointError, match="is not a sound zip archive"):
        download(TINY)
    assert left(cache) == []
    assert read_folder(download(TINY))[DATA] == RANDOM[::-1]


# ---- what was seen first


def test_another_archive_later_is_refused(server, cache):
    folder = download(TINY)
    server.files[PATH] = OTHER
    with pytest.raises(CheckpointError) as caught:
        download(TINY, force=True)
    first, then = (hashlib.sha256(archive).hexdigest() for archive in (ARCHIVE, OTHER))
    assert re.search(f"has SHA-256 {then}, but on 20.* it had {first}", str(caught.value))
    assert str(caught.value).endswith(f"bert-features download {TINY} --forget")
    assert read_folder(folder) == FILES
    assert left(cache) == [TINY, f"{TINY}.json"]
    assert read_folder(download(TINY, forget=True))["vocab.txt"].endswith(b"other\n")
    assert Record.model_validate_json((cache / f"{TINY}.json").read_text()).sha256 == then
    assert verify(TINY) == folder


def test_the_hash_outlives_the_folder(server, cache):
    for path in download(TINY).iterdir():
        path.unlink()
    (cache / TINY).rmdir()
    server.files[PATH] = OTHER
    with pytest.raises(CheckpointError, match="the archive has changed"):
        download(TINY)
    server.files[PATH] = ARCHIVE
    assert read_folder(download(TINY)) == FILES


def test_force_downloads_again(server, cache):
    folder = download(TINY)
    (folder / "vocab.txt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"vocab.txt has 0 bytes, 12 .* {TINY} --force"):
        find(TINY)
    with pytest.raises(CheckpointError, match="is damaged"):
        download(TINY)
    assert read_folder(download(TINY, force=True)) == FILES
    (folder / DATA).unlink()
    with pytest.raises(CheckpointError, match=f"there is no {DATA}"):
        find(TINY)


def test_verify(server, cache):
    with pytest.raises(CheckpointError, match=f"is not in the cache .* download {TINY}"):
        verify("bert-tiny")
    folder = download(TINY)
    assert verify("bert-tiny") == folder
    changed = bytearray(RANDOM)
    changed[500_000] ^= 1
    (folder / DATA).write_bytes(changed)
    (folder / "model.safetensors").write_bytes(b"")
    assert find(TINY) == folder  # the size is the same
    message = rf"{DATA} has changed; model.safetensors was added\. Download it again with"
    with pytest.raises(CheckpointError, match=message):
        verify(TINY)
    assert verify(download(TINY, force=True).name) == folder


def test_unpacked_by_hand(server, cache):
    (cache / TINY).mkdir(parents=True)
    with pytest.raises(
        CheckpointError, match=r"there is no vocab.txt; there is no bert_config.json"
    ):
        find(TINY)
    for name, content in FILES.items():
        (cache / TINY / name).write_bytes(content)
    assert download(TINY) == find(TINY) == verify(TINY) == cache / TINY
    assert server.asked == []
    (cache / TINY / "vocab.txt").write_bytes(b"[PAD]\n[XXX]\n")
    with pytest.raises(CheckpointError, match=r"vocab.txt has changed"):
        verify(TINY)
    assert read_folder(download(TINY, force=True)) == FILES
    assert verify(TINY) == cache / TINY


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}'])
def test_a_damaged_record(server, cache, text):
    download(TINY)
    (cache / f"{TINY}.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"json is damaged.* {TINY} --forget"):
        find(TINY)
    assert verify(download(TINY, forget=True).name) == cache / TINY


# ---- the cache


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_FEATURES_CACHE", "~/models")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "models"
    monkeypatch.setenv("BERT_FEATURES_CACHE", "")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"/caches/{name}")
    assert str(cache_dir()) == "/caches/bert_features"


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch, below):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BERT_FEATURES_CACHE", f"{tmp_path}/file{below}")
    message = f"cannot (write to|read) the cache {tmp_path}/file{below}: .*set BERT_FEATURES_CACHE"
    with pytest.raises(CheckpointError, match=message):
        download(TINY)
    assert server.asked == []


def test_threads_download_once(server, cache):
    server.script = [slowly]
    results = []
    threads = [threading.Thread(target=lambda: results.append(download(TINY))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [cache / TINY] * 4
    assert len(server.asked) == 1
    assert read_folder(cache / TINY) == FILES


def slowly(handler, body):
    handler.head(200, Content_Length=len(body))
    time.sleep(0.2)
    handler.send(body)


# ---- the command line


def run(*arguments):
    return CliRunner().invoke(app, ["download", *arguments])


def program(*arguments):
    command = [sys.executable, "-m", "bert_features", "download", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_a_killed_process_is_resumed_by_the_next(server, cache):
    go_on = threading.Event()
    server.script = [stalls_after(600_000, go_on)]
    partial = cache / f"{TINY}.zip.partial"
    with program("bert-tiny") as process:
        deadline = time.monotonic() + 600
        while not (partial.is_file() and partial.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    go_on.set()
    came = partial.stat().st_size
    assert 0 < came < len(ARCHIVE)
    assert left(cache) == [partial.name]
    assert read_folder(download(TINY)) == FILES
    assert server.asked[1]["Range"] == f"bytes={came}-"


def test_the_command_prints_the_folder(server, cache):
    result = run("bert-tiny")
    assert (result.exit_code, result.stdout) == (0, f"{cache / TINY}\n"), result.output
    assert run("bert-tiny", "--force").exit_code == 0
    assert len(server.asked) == 2
    result = run("bert-tiny", "--verify")
    assert result.stdout == f"{cache / TINY}: every file is as recorded\n"
    server.files[PATH] = OTHER
    assert run("bert-tiny", "--force").exit_code == 1
    assert run("bert-tiny", "--forget").exit_code == 0


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_the_table(server, cache, arguments):
    download(TINY)
    lines = run(*arguments).stdout.splitlines()
    assert [line[2:].split()[0] for line in lines[1 : 1 + 33]] == list(PUBLISHED)
    (tiny,) = [line for line in lines if TINY in line and "4,385,920" in line]
    assert tiny.split() == ["*", TINY, "4,385,920", "uncased", "bert-tiny"]
    (new,) = [line for line in lines if BASE_OF_2020 in line]
    assert "retrained" in new
    assert any(str(cache) in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bert-tinny"], 1, "did you mean bert-tiny"),
        (["bert-tiny", "--verify"], 1, "is not in the cache"),
        (["bert-mini"], 1, "the server answered 404"),
        (["--verify"], 2, "--verify needs a checkpoint; pass its NAME"),
        (
            ["bert-tiny", "--list"],
            2,
            "--list and bert-tiny are both given; --list takes nothing else",
        ),
        (["bert-tiny", "--verify", "--force"], 2, "--verify and --force exclude each other"),
    ],
)
def test_failures_are_one_line(server, cache, arguments, code, message):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("bert-features: ")
    assert message in line
    assert result.stdout == ""


# ---- wherever a checkpoint is asked for


def test_the_second_use_of_a_name_needs_no_network(server, tf1, monkeypatch, caplog):
    server.files[PATH] = zipped(read_folder(tf1).items())
    first = find_checkpoint(TINY)
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "http://127.0.0.1:9")
    caplog.set_level("INFO", logger="bert_features")
    caplog.clear()
    assert find_checkpoint(TINY) == first
    assert find_checkpoint("bert-tiny").weights_path == first.weights_path
    assert len(server.asked) == 1
    assert caplog.messages == []
