"""The edge of the command line: one line and an exit status, whatever ends a command."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
import typer

from bert_features.cli import edge
from bert_features.errors import ConfigError, OutputError
from bert_features.files import Staging
from bert_features.monitor import interruption
from tests.cli.command_line import program, run
from tests.cli.forks import call_in_fork


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
        (PermissionError(errno.EACCES, "No access", "/a/b"), "cannot use /a/b: No access", 1),
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
    ],
)
def test_every_error_is_one_line(ends, error, line, status):
    assert ends(error) == ([f"bert-features: {line}"], status)


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


def test_an_interruption_as_a_name_is_imported_of_a_loaded_package_is_said(monkeypatch, capsys):
    """Python then asks the package for its names, from code of its own."""

    class Package(types.ModuleType):
        @property
        def name(self):
            signal.raise_signal(signal.SIGTERM)

    package = Package("loaded_package")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "loaded_package", package)
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("ended without a line"))
    with pytest.raises(typer.Exit), edge.guard(debug=False):
        from loaded_package import name  # noqa: F401
    assert capsys.readouterr().err == "bert-features: interrupted by SIGTERM\n"


def test_closed_standard_input_and_error_stay_out_of_files(tmp_path):
    """A file that takes the number 2 gets what is meant for standard error."""
    code = (
        "import os, sys\n"
        "from bert_features.cli.edge import secure_standard_streams\n"
        "secure_standard_streams()\n"
        "print(sys.stdin, file=sys.stderr)\n"
        f"number = os.open({str(tmp_path / 'f')!r}, os.O_CREAT)\n"
        "print(number)"
    )
    closed = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]
    result = subprocess.run(
        [*closed, sys.executable, "-c", code], stdout=subprocess.PIPE, check=True
    )
    assert int(result.stdout) > 2


def test_a_reader_that_leaves_ends_a_command_quietly():
    process = program("inspect", "minilm", stdin=None)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=600) == 128 + signal.SIGPIPE
    process.stderr.close()


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


CLOSED = "standard output is closed; redirect it to a file, or to /dev/null"
GONE = "is relative to the working folder, which was deleted; change to another"
PIECES = ["tokenize", "--cased", "--vocab-file", "vocab.txt"]
STREAMS = [
    # Arguments, what a shell closes, standard output and its encoding; the error and the status.
    (["--help"], (), "/dev/full", "utf-8", "cannot write the output: the disk is full", 1),
    (["--version"], (1,), "out", "utf-8", CLOSED, 1),
    (["extract", "in.txt", "-o", "-"], (1,), "out", "utf-8", CLOSED, 1),
    ([*PIECES, "in.txt"], (), "/dev/full", "utf-8", "cannot write the output: the disk is full", 1),
    ([*PIECES, "-"], (0,), "out", "utf-8", "standard input is closed; pass a file, or redir", 1),
    ([*PIECES, "in.txt"], (), "out", "latin-1", "", 0),
    ([*PIECES, "in.txt"], (), "out", "ascii", r"standard output is ascii, which lacks '\xe9'; ", 1),
    (
        [*PIECES, "a\nb\x1b.txt"],
        (),
        "out",
        "utf-8",
        r"cannot read a\nb\x1b.txt: No such file or",
        1,
    ),
    (["a\nb\x1b"], (), "out", "utf-8", r"No such command 'a\nb\x1b'", 2),
    ([*PIECES, "in.txt"], "gone", "out", "utf-8", GONE, 1),
    (["extract", "in.txt", "-o", "out.npz"], "gone", "out", "utf-8", GONE, 1),
]


@pytest.mark.slow  # of the fork server
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_streams_that_fail(tmp_path):
    """In one process, as it starts for each of them."""
    (tmp_path / "in.txt").write_text("é\n", encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\né\n")
    call_in_fork(run_with_streams, tmp_path)
    results = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    for case, (status, error, out) in zip(STREAMS, results, strict=True):
        assert (status, case[4] in error) == (case[5], True), (case, error)
        assert "Traceback" not in error
        assert error.count("\n") == (error != "") or status == 2
        assert case[3] != "latin-1" or out == "é\n"


def run_with_streams(folder):
    """Writes the exit status, standard error and standard output of each of `STREAMS`."""
    from bert_features import cli

    results = (folder / "results").open("w")
    for arguments, closed, out, encoding, _, _ in STREAMS:
        status = []
        cli.leave = status.append
        os.chdir(folder)
        if closed == "gone":
            (folder / "gone").mkdir()
            os.chdir(folder / "gone")
            (folder / "gone").rmdir()
        for number, path in enumerate([os.devnull, folder / out, folder / "err"]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        streams = [
            open(number, mode, 1, encoding, errors, closefd=False)  # noqa: SIM115
            for number, mode, errors in [
                (0, "r", None),
                (1, "w", None),
                (2, "w", "backslashreplace"),
            ]
        ]
        for number in closed if closed != "gone" else ():
            os.close(number)
            streams[number] = None  # as Python does
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv = ["bert-features", *arguments]
        cli.main()
        error = (folder / "err").read_text()
        written = (folder / "out").read_text("latin-1") if out == "out" else ""
        print(json.dumps([status[0] if status else 0, error, written]), file=results, flush=True)
