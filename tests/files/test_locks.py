"""Locks, and what importing the room costs."""

import contextlib
import subprocess
import sys
import textwrap
import threading

import pytest

from bert_features.files import locked


def test_one_thread_at_a_time_holds_a_lock(tmp_path, caplog):
    caplog.set_level("INFO", logger="bert_features")
    held, go_on, order = threading.Event(), threading.Event(), []

    def hold():
        with locked(tmp_path / "deep" / "lock", "waiting"):
            held.set()
            go_on.wait(60)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    threading.Timer(0.2, go_on.set).start()
    with locked(tmp_path / "deep" / "lock", "waiting"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert caplog.messages == ["waiting"]


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_lock_is_free_again(tmp_path, error):
    for _ in range(2):
        with contextlib.suppress(ValueError), locked(tmp_path / "lock", "waiting"):
            if error:
                raise error


def test_importing_is_cheap():
    check = textwrap.dedent(
        """
        import sys, bert_features.files
        sys.exit(sorted({"filelock", "platformdirs", "numpy", "pydantic"} & sys.modules.keys()))
        """
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
