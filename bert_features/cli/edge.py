"""The edge of the command line: whatever ends a command becomes one line and an exit status.

Exit status: 0; 1 (the run failed); 2 (bad usage); 128 + n after the signal n, as shells count.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import typer

from bert_features.cli.logs import error_line
from bert_features.cli.settings import as_options
from bert_features.errors import BertFeaturesError, ConfigError, OutputError, first_line
from bert_features.files import is_writing
from bert_features.monitor import interruption

# Ctrl-C; a batch scheduler that ends a job; a closed terminal (nohup ignores that one).
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Error classes of TensorFlow, of JAX, and of JAX before 0.5. By name: importing them is slow.
_DEVICE_ERRORS = {"OpError", "JaxRuntimeError", "XlaRuntimeError"}
_LESS_MEMORY = "smaller --batch-tokens and --buffer-mb need less"
_NO_THREAD = "no thread or process can be started: a limit is reached (ulimit -u), or memory"
# What the system refuses, and what to do.
_REFUSED: dict[int | None, str] = {
    errno.ENOMEM: f"out of memory; {_LESS_MEMORY}",
    errno.EAGAIN: _NO_THREAD,
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine; close some",
    errno.ENOSPC: "cannot write the output: the disk is full",
    errno.EDQUOT: "cannot write the output: the disk quota is used up",
    errno.EFBIG: "cannot write the output: the file would be too large",
}
# What the loader of libraries says when it gets no memory.
_NO_ROOM = "failed to map segment"


@contextlib.contextmanager
def guard(*, debug: bool) -> Iterator[None]:
    """Turns whatever ends the block into one line on standard error and `typer.Exit`.

    The signals that end a program raise KeyboardInterrupt in the block. With `debug` the traceback
    is shown above the line.
    """
    try:
        with _interruptions():
            yield
            sys.stdout.flush()
    except (typer.Exit, typer.Abort):
        raise
    # All of them: a library that Ctrl-C interrupts may turn KeyboardInterrupt into another error.
    except (Exception, KeyboardInterrupt) as error:
        raise typer.Exit(report(error, debug=debug)) from None


def report(error: Exception | KeyboardInterrupt, *, debug: bool) -> int:
    """Prints the line for an error that is being handled; gives the exit status."""
    line, status = _describe(error, interruption.received)
    trace = traceback.format_exc() if debug else ""
    with contextlib.suppress(OSError, AttributeError):  # its reader has left, or it is closed
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        if line or trace:
            print(error_line(line, trace), file=sys.stderr)
    return status


@contextlib.contextmanager
def _interruptions() -> Iterator[None]:
    """The signals that end a program raise KeyboardInterrupt in the block."""
    interruption.received = None
    handlers = {number: signal.getsignal(number) for number in _ENDINGS}
    before = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    if _is_importing(frame) and not is_writing():
        # An import that an exception ends may crash in C code, or drop the exception where
        # Python has nobody to pass it to. Nothing is to be cleaned up yet.
        os._exit(128 + number)
    interruption.interrupt(number)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one that called it, is Python's import of a module for the first time."""
    while frame is not None:
        code = frame.f_code
        if (code.co_filename, code.co_name) == ("<frozen importlib._bootstrap>", "_find_and_load"):
            return True
        frame = frame.f_back
    return False


def _describe(
    error: Exception | KeyboardInterrupt, received: signal.Signals | None
) -> tuple[str, int]:
    """The line for an error, without the program's name, and the exit status."""
    if received is not None or isinstance(error, KeyboardInterrupt):
        return _describe_interruption(error, received or signal.SIGINT)
    if isinstance(error, BertFeaturesError):
        return as_options(str(error)), 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, BrokenPipeError):  # as `| head` ends; nobody reads on
        return "", 128 + signal.SIGPIPE
    bug = f"this is a bug: {_named(error)}; please report it with the output of --debug"
    return _describe_foreseen(error) or bug, 1


def _describe_interruption(error: BaseException, received: signal.Signals) -> tuple[str, int]:
    """An interruption; the text of a KeyboardInterrupt says what became of the output."""
    by = "" if received == signal.SIGINT else f" by {received.name}"
    outcome = str(error) if isinstance(error, KeyboardInterrupt) else ""
    return "; ".join(filter(None, [f"interrupted{by}", outcome])), 128 + received


def _describe_foreseen(error: Exception) -> str | None:
    """A failure of the machine; None for any other error."""
    if isinstance(error, MemoryError):  # those of NumPy and pyarrow are subclasses
        return f"out of memory: {_named(error)}; {_LESS_MEMORY}"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return _NO_THREAD
    if isinstance(error, OSError):
        named = f"cannot use {error.filename}: {error.strerror}" if error.filename else None
        return _REFUSED.get(error.errno, named)
    if isinstance(error, UnicodeEncodeError):
        lacking = f"{error.encoding}, which lacks {error.object[error.start]!r}"
        return f"standard output is {lacking}; set PYTHONIOENCODING=utf-8"
    if isinstance(error, ImportError) and _NO_ROOM in str(error):
        return f"out of memory: {_named(error)}"
    if not _DEVICE_ERRORS.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        named = _named(error)
        exhausted = "ResourceExhaustedError" in named or "RESOURCE_EXHAUSTED" in str(error)
        return f"the device failed: {named}" + f"; {_LESS_MEMORY}" * exhausted
    return None


def _named(error: Exception) -> str:
    """The class of an error and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error, empty='no message')}"


def leave(status: int) -> NoReturn:
    """Ends the process of a command that failed, without waiting for the threads of libraries.

    One of them may be inside TensorFlow, reading ahead. When Python ends while such a thread asks
    for its lock, the thread is ended within C++ code, which aborts the process.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def secure_standard_streams() -> None:
    """Keeps files from taking the place of a standard stream that the caller has closed.

    The first file that is opened would get its number, and whatever a library prints would go into
    that file. Raises OutputError if it is standard output: results would be lost. A name that the
    terminal's encoding lacks ends no command.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, None)  # as Python does, so that a reader can tell
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        raise OutputError("standard output is closed; redirect it to a file, or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
