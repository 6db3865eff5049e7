"""TensorFlow's start-up messages stay off the terminal; everything else gets there."""

import gc
import subprocess
import sys
import textwrap
import weakref

import pytest

from bert_features.machine import onednn
from bert_features.machine.quiet_tensorflow import _without_garbage_collection


def run(program):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )


@pytest.mark.slow
def test_importing_through_the_package_drops_tensorflows_messages_and_turns_onednn_on(monkeypatch):
    monkeypatch.delenv(onednn.VARIABLE, raising=False)
    result = run(
        """
        import os, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "tensorflow":
                    os.write(2, b"WARNING: All log messages before absl::InitializeLog() ...\\n")
                    os.write(2, b"I0000 00:00:1795248007.338518   12729 port.cc:153] oneDNN\\n")
                    os.write(2, b"someone else's line\\n")
        sys.meta_path.insert(0, Finder())
        from bert_features import FullTokenizer, read_features
        from tensorflow.python.util import _pywrap_util_port
        print(_pywrap_util_port.IsMklEnabled())
        """
    )
    assert (result.returncode, result.stderr) == (0, "someone else's line\n")
    if onednn.is_x86():
        assert result.stdout == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize("claims", [True, False])
def test_a_process_of_our_own_does_not_load_what_it_does_not_use(claims, tmp_path):
    """Keras imports matplotlib, and scikit-learn, which imports SciPy, where they are installed."""
    for name in ("matplotlib", "sklearn", "scipy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('it was looked for')")
    result = run(
        f"""
        import importlib, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from bert_features.machine import quiet_tensorflow
        if {claims}:
            quiet_tensorflow.claim_process()
        found = set()
        class Finder:
            def find_spec(self, name, path=None, target=None):
                found.add(name)
        sys.meta_path.insert(0, Finder())
        quiet_tensorflow.import_tensorflow("tensorflow").keras.layers.Dense
        print(sorted({{"matplotlib", "sklearn", "scipy"}} & found))
        try:
            import scipy
        except ImportError as error:
            print(error)
        """
    )
    looked_for = [] if claims else ["matplotlib", "scipy", "sklearn"]
    assert result.stdout.splitlines() == [str(looked_for), "it was looked for"], result.stderr


def test_a_failed_import_tells_all():
    result = run(
        """
        import os, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "tensorflow":
                    os.write(2, b"I0000 00:00:1795248007.338518   12729 port.cc:153] why\\n")
                    raise ImportError("no such luck")
        sys.meta_path.insert(0, Finder())
        from bert_features.machine.quiet_tensorflow import import_tensorflow
        import_tensorflow()
        """
    )
    assert result.returncode == 1
    assert "port.cc:153] why" in result.stderr
    assert "no such luck" in result.stderr


class Thing:
    """A thing in a circle: only a collection frees it."""

    def __init__(self):
        self.itself = self


def test_an_import_is_not_interrupted_by_collections():
    collections = []
    with _without_garbage_collection():
        gc.callbacks.append(note := lambda phase, info: collections.append(phase))
        kept, things = [[] for _ in range(10 * gc.get_threshold()[0])], Thing()
        gc.callbacks.remove(note)
    assert not collections
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert any(old is kept for old in gc.get_objects(generation=2))
    freed = weakref.ref(things)
    del things
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("state", ["disabled", "frozen"])
def test_the_users_own_choice_stands(state):
    try:
        gc.disable() if state == "disabled" else gc.freeze()
        with _without_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == (state == "frozen")
        # Not the number itself: an object that is freed meanwhile lowers it.
        assert (gc.get_freeze_count() > 0) == (state == "frozen")
    finally:
        gc.enable()
        gc.unfreeze()
