"""TensorFlow's start-up messages stay off the terminal; everything else gets there."""

import subprocess
import sys
import textwrap

import pytest


def run(program):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )


@pytest.mark.slow
def test_importing_through_the_package_says_nothing():
    result = run("from bert_features import FullTokenizer, read_features")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.slow
def test_only_tensorflows_messages_are_dropped():
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
        from bert_features.machine.quiet_tensorflow import import_tensorflow
        print(import_tensorflow().__name__)
        """
    )
    assert (result.stdout, result.stderr) == ("tensorflow\n", "someone else's line\n")


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
