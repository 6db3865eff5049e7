"""The edge of the command line: one line and an exit status, whatever ends a command."""

import contextlib
import errno
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import typer

from bert_features.cli import edge
from bert_features.errors import ConfigError, OutputError
from bert_features.files import Staging
from bert_features.monitor import interruption
from tests.cli.command_line import program, run


@pytest.fixture
def ends(capsys):
    """Runs a block of the guard; gives the lines on standard error and the exit status."""

    def end(error):
        with pytest.raises(typer.Exit) as caught, edge.guard(debug=False):
            raise error
        return capsys.readouterr().err.splitlines(), caught.value.exit_code

    return end


MEMORY = "smaller --batch-tokens and --buffer-mb need less"
THREAD = "no thread or process can be started: a limit is reached (ulimit -u), or memory"


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (OutputError("x exists"), "x exists", 1),
        (ConfigError("x is 2"), "x is 2", 2),
        (KeyboardInterrupt(), "interrupted", 130),
        (KeyboardInterrupt("nothing was written"), "interrupted; nothing was written", 130),
        (MemoryError(), f"out of memory: MemoryError: no message; {MEMORY}", 1),
        (
            pa.ArrowMemoryError("malloc of size 9 failed"),
            f"out of memory: ArrowMemoryError: malloc of size 9 failed; {MEMORY}",
            1,
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), f"out of memory; {MEMORY}", 1),
        (
            ImportError("lib.so.2: failed to map segment from shared object"),
            "out of memory: ImportError: lib.so.2: failed to map segment from shared object",
            1,
        ),
        (RuntimeError("can't start new thread"), THREAD, 1),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), THREAD, 1),
        (OSError(errno.EMFILE, "x"), "too many open files; raise the limit (ulimit -n)", 1),
        (
            tf.errors.UnavailableError(None, None, "the chip is lost\nat a.cc:12"),
            "the device failed: UnavailableError: the chip is lost",
            1,
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"),
            f"the device failed: ResourceExhaustedError: OOM when allocating; {MEMORY}",
            1,
        ),
        (
            RecursionError("maximum recursion depth exceeded"),
            "this is a bug: RecursionError: maximum recursion depth exceeded; please report it "
            "with the output of --debug",
            1,
        ),
        (
            OSError(errno.EIO, "Input/output error"),
            "this is a bug: OSError: [Errno 5] Input/output error; please report it with the "
            "output of --debug",
            1,
        ),
    ],
)
def test_every_error_is_one_line(ends, error, line, status):
    assert ends(error) == ([f"bert-features: {line}"], status)


def test_an_array_beyond_memory_is_no_bug(capsys):
    with pytest.raises(typer.Exit), edge.guard(debug=False):
        np.zeros(1 << 55, np.uint8)
    assert "bert-features: out of memory: " in capsys.readouterr().err


def test_a_command_ends_at_the_guard(monkeypatch):
    def fail(*arguments, **settings):
        raise ZeroDivisionError

    monkeypatch.setattr("bert_features.cli.doctor.examine", fail)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stderr.startswith("bert-features: this is a bug: ZeroDivisionError")
    first, *_, last = run("doctor", "--debug").stderr.splitlines()
    assert first.startswith("Traceback")
    assert last.startswith("bert-features: this is a bug: ZeroDivisionError")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_counts_however_a_library_reports_it(capsys, sent):
    if signal.getsignal(sent) == signal.SIG_IGN:
        pytest.skip(f"{sent.name} is ignored here")
    before = signal.getsignal(sent)

    def initialize():  # as pybind11's modules do
        try:
            signal.raise_signal(sent)
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    with pytest.raises(typer.Exit) as caught, edge.guard(debug=False):
        initialize()
    assert caught.value.exit_code == 128 + sent
    by = "" if sent == signal.SIGINT else f" by {sent.name}"
    assert capsys.readouterr().err == f"bert-features: interrupted{by}\n"
    assert signal.getsignal(sent) is before


# Sends the signal as a module is imported: typer before a command begins, TensorFlow inside one.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
module = sys.argv.pop()
class Interrupts:
    def find_spec(name, path, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts)
from bert_features.__main__ import main
from bert_features.monitor import interruption
main()
"""


@pytest.mark.parametrize("module", ["typer", "tensorflow"])
def test_an_interruption_during_the_imports_ends_the_process_quietly(text, out, module):
    command = ["extract", text, "-o", out / "o.npz", module]
    result = subprocess.run([sys.executable, "-c", INTERRUPTED, *command], capture_output=True)
    assert result.stderr == b""
    assert result.returncode in (-signal.SIGINT, 130)  # a shell calls both 130


def test_closed_standard_input_and_error_stay_out_of_files(tmp_path):
    """A file that takes the number 2 gets what is meant for standard error."""
    code = (
        "import os, sys\n"
        "from bert_features.cli.edge import secure_standard_streams\n"
        "secure_standard_streams()\n"
        "print(sys.stdin.read(), file=sys.stderr)\n"
        f"number = os.open({str(tmp_path / 'f')!r}, os.O_CREAT)\n"
        "print(number)"
    )
    closed = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]
    result = subprocess.run(
        [*closed, sys.executable, "-c", code], stdout=subprocess.PIPE, check=True
    )
    assert int(result.stdout) > 2


def test_a_reader_that_leaves_ends_a_command_quietly():
    process = program("download", "--list", stdin=None)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=600) == 128 + signal.SIGPIPE
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_results_that_cannot_be_written_are_an_error():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "bert_features", "download", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.stderr == ("bert-features: cannot write the output: the disk is full\n")
    assert result.returncode == 1


def test_an_interruption_while_files_are_half_written_is_raised_again(tmp_path, monkeypatch):
    """Python drops an exception in some places of an import, so that the command would continue."""

    class Interrupts:
        @staticmethod
        def find_spec(name, path, target=None):
            if name == "absent_module":
                with contextlib.suppress(KeyboardInterrupt):  # as Python does
                    signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "meta_path", [Interrupts, *sys.meta_path])
    staging = Staging([tmp_path / "f"])

    def write():
        with contextlib.suppress(ImportError):
            import absent_module  # noqa: F401
        try:
            interruption.raise_if_interrupted()
        finally:
            staging.discard()

    with pytest.raises(typer.Exit) as caught, edge.guard(debug=False):
        write()
    assert caught.value.exit_code == 128 + signal.SIGTERM
