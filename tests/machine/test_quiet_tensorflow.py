"""TensorFlow's start-up messages stay off the terminal; everything else gets there."""

import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bert_features.machine import library_pages
from bert_features.machine import quiet_tensorflow as quiet


def import_made_up(tmp_path, program, before="", after=""):
    """What an import of TensorFlow prints, where `tensorflow` is this program."""
    (tmp_path / "tensorflow.py").write_text(textwrap.dedent(program))
    code = f"from bert_features.machine import quiet_tensorflow as quiet\n{before}\n"
    code += f"print(quiet.import_tensorflow('tensorflow').x)\n{after}"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
    )


def test_only_tensorflows_messages_are_dropped(tmp_path):
    """That there are no others is tested in tests/cli/test_processes.py."""
    result = import_made_up(
        tmp_path,
        """
        import os, types
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() ...\\n")
        os.write(2, b"I0000 00:00:1795248007.338518   12729 port.cc:153] oneDNN\\n")
        os.write(2, b"someone else's line\\n")
        config = types.SimpleNamespace(list_physical_devices=list)
        x = 7
        """,
    )
    assert (result.stdout, result.stderr) == ("7\n", "someone else's line\n")


@pytest.mark.parametrize("claims", [True, False])
def test_a_process_of_our_own_does_not_load_what_it_does_not_use(tmp_path, claims):
    """That TensorFlow and Keras do without it is tested in tests/cli/test_processes.py."""
    (tmp_path / "scipy.py").write_text("")
    result = import_made_up(
        tmp_path,
        """
        import types
        try:
            import scipy
            x = True
        except ImportError:
            x = False
        config = types.SimpleNamespace(list_physical_devices=list)
        """,
        before="quiet.release_library_pages = lambda: print('released')\n"
        + ("quiet.claim_process()" if claims else ""),
        after="import scipy, gc; print(gc.get_freeze_count() > 1000)",
    )
    # No collection looks at what was imported, and what only the import needed is given back.
    lines = [*["released"] * claims, str(not claims), str(claims)]
    assert (result.stdout.split(), result.stderr) == (lines, "")


# What another thread of a program may do between the look at the map and the advice: it unloads a
# library, and memory takes its place.
UNLOADED = """
import ctypes, mmap, pathlib
from bert_features.machine import library_pages

def pages(place, protection, flags, file):
    mapped = ctypes.CDLL(None).mmap
    mapped.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    mapped.restype = ctypes.c_void_p
    return mapped(place, mmap.PAGESIZE, protection, mmap.MAP_PRIVATE | flags, file, 0)

library = pathlib.Path("made_up.so")
library.write_bytes(bytes(mmap.PAGESIZE))
with library.open("rb") as file:
    place = pages(None, mmap.PROT_READ, 0, file.fileno())
ctypes.string_at(place, 1)
smaps = pathlib.Path("smaps")
smaps.write_bytes(library_pages.SMAPS.read_bytes())
library_pages.SMAPS = smaps
MAP_FIXED = 0x10
pages(place, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_ANONYMOUS | MAP_FIXED, -1)
ctypes.memset(place, 8, 1)
"""


@pytest.mark.skipif(not library_pages.SMAPS.exists(), reason="only Linux has this map")
def test_memory_in_the_place_of_a_library_stays(tmp_path):
    tensorflow = "import types; config = types.SimpleNamespace(list_physical_devices=list); x = 7"
    after = "print(*ctypes.string_at(place, 1))"
    result = import_made_up(tmp_path, tensorflow, before=UNLOADED, after=after)
    assert (result.stdout, result.stderr) == ("7\n8\n", "")


@pytest.mark.parametrize("claims", [True, False])
def test_a_process_of_our_own_looks_for_no_garbage_as_it_ends(claims):
    """Exit handlers are called before, and standard output is flushed."""
    code = f"""
        import atexit, gc
        from bert_features.machine.quiet_tensorflow import claim_process

        class Circle:
            def __init__(self):
                self.itself = self

            def __del__(self):
                print("collected")

        if {claims}:
            claim_process()
        atexit.register(lambda: print("handler", gc.get_freeze_count() > 10_000))
        circle = Circle()
        print("end", end=" ")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["end", "handler", "False", *([] if claims else ["collected"])]


def test_a_failed_import_tells_all(tmp_path):
    result = import_made_up(
        tmp_path,
        """
        import os
        os.write(2, b"I0000 00:00:1795248007.338518   12729 port.cc:153] why\\n")
        raise ImportError("no such luck")
        """,
    )
    assert result.returncode == 1
    assert "port.cc:153] why" in result.stderr
    assert "no such luck" in result.stderr


@pytest.mark.parametrize(("value", "level"), [("0", 0), ("1", 1), ("3", 2)])
def test_warnings_in_the_middle_of_a_run_stay_off_the_terminal(monkeypatch, value, level):
    """As of `op_level_cost_estimator` on ARM. Errors get there, whatever the variable says."""
    import tensorflow as tf

    library = ctypes.CDLL(f"{tf.sysconfig.get_lib()}/libtensorflow_framework.so.2")
    read = getattr(library, quiet._SET_MIN_LOG_LEVEL.split("14Set")[0] + "11MinLogLevelEv", None)
    if read is None:
        pytest.skip("this TensorFlow has another absl")
    before = read()
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", value)
    quiet._keep_warnings_from_terminal(tf)
    found = read()
    library[quiet._SET_MIN_LOG_LEVEL](before)
    assert found == level


def test_what_a_process_of_our_own_starts_takes_no_module_of_the_current_folder(tmp_path):
    """As `python -P` here, the console script does not have that folder on its path."""
    (tmp_path / "signal.py").write_text("raise SystemExit('the wrong signal')")
    program = """
        import subprocess, sys
        from bert_features.machine import quiet_tensorflow
        quiet_tensorflow.claim_process()
        raise SystemExit(subprocess.run([sys.executable, "-c", "import signal"]).returncode)
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("PYTHONSAFEPATH", None)
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
