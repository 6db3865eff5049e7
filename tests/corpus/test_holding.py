"""Who holds a folder: by its lock, whatever files are left."""

import errno
import os
import signal
import socket
import subprocess
import sys

import pytest

from bert_features.config.shards import Shard
from bert_features.corpus.folder import MARK, UNKNOWN, Holder, find_holders, holding, is_seen
from bert_features.errors import OutputError


def test_the_holder_is_found_while_it_holds(tmp_path):
    folder = tmp_path / "out"
    with holding(folder, processes=3):
        assert find_holders(folder) == (Holder(os.getpid(), socket.gethostname(), 3),)
        with (
            pytest.raises(OutputError, match=rf"another run .* \(process {os.getpid()} on "),
            holding(folder),
        ):
            pass
        assert find_holders(folder)
    assert not find_holders(folder)
    assert not folder.exists()


def test_a_killed_run_holds_nothing(tmp_path):
    folder = tmp_path / "out"
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from bert_features.corpus.folder import holding\n"
        "with holding(Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(path.name for path in folder.iterdir()) == [".lock", ".running"]
    assert not find_holders(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", ".running"]


def test_a_holder_that_cannot_be_read_is_still_one(tmp_path):
    folder = tmp_path / "out"
    with holding(folder):
        for content in ("", "[1]", '{"process": "x"}'):
            (folder / ".running").write_text(content)
            assert find_holders(folder) == (Holder(None, "an unknown machine"),)
            with (
                pytest.raises(OutputError, match=r"another run is writing .*out; wait"),
                holding(folder),
            ):
                pass


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_the_lock_of_a_machine_that_is_gone_is_removed_by_hand(tmp_path, monkeypatch):
    """On a file system without flock, where its file is the lock."""
    import fcntl

    def flock(descriptor, operation):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    with holding(tmp_path):
        lock = (tmp_path / ".lock").read_bytes()
    (tmp_path / ".lock").write_bytes(lock.replace(socket.gethostname().encode(), b"other"))
    (tmp_path / ".running").write_text('{"process": 7, "machine": "other"}')
    with (
        pytest.raises(OutputError, match=r"process 7 on other.* gone, remove .*/\.lock and run"),
        holding(tmp_path),
    ):
        pass
    (tmp_path / ".lock").unlink()
    with holding(tmp_path):
        pass


@pytest.mark.parametrize("name", [".lock", ".running"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    with holding(tmp_path):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        assert find_holders(tmp_path) == (() if name == ".lock" else (UNKNOWN,))


def test_a_run_begins_while_someone_asks(tmp_path, monkeypatch):
    """A question has the lock for a moment; a run must not take it for another run."""
    import fcntl
    import threading

    folder = tmp_path / "out"
    folder.mkdir()
    descriptor = os.open(folder / ".lock", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    timer = threading.Timer(0.1, os.close, [descriptor])
    timer.start()
    with holding(folder):
        pass
    timer.join()


@pytest.mark.parametrize("share", [Shard(), Shard(1, 4)])
def test_a_folder_is_seen_where_the_mark_of_its_run_is(tmp_path, share):
    with holding(tmp_path, share=share):
        assert is_seen(tmp_path, MARK)
        assert not is_seen(tmp_path, "of another run")
        assert not is_seen(tmp_path / "not-mounted", MARK)
    assert not is_seen(tmp_path, MARK)
