"""The edge of the command line: whatever ends a command becomes one line and an exit status.

Exit status: 0; 1 (the run failed); 2 (bad usage); 128 + n after the signal n, as shells count.
"""

import contextlib
import errno
import importlib.metadata
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import ClassVar, NoReturn

import typer

from bert_features.cli.logs import error_line
from bert_features.cli.settings import as_option
from bert_features.errors import BertFeaturesError, ConfigError
from bert_features.files import is_writing

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
_MAX_CHARACTERS = 300


@contextlib.contextmanager
def guard(*, debug: bool, signals: bool = True) -> Iterator[None]:
    """Turns what ends the block into one line on standard error and `typer.Exit`.

    Args:
      debug: whether to show the traceback above the line.
      signals: whether the signals that end a program raise KeyboardInterrupt in the block.
    """
    ending = _Ending()
    try:
        with ending if signals else contextlib.nullcontext():
            yield
            _flush()
    except (typer.Exit, typer.Abort):
        raise
    # All of them: an import that Ctrl-C interrupts may turn KeyboardInterrupt into another error.
    except (Exception, KeyboardInterrupt) as error:
        line, status = _describe(error, ending.received)
        _fail(line, status, debug=debug)


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if a signal came and the command still runs.

    Python drops an exception where it has no caller to pass it to, as in a callback of the garbage
    collector.
    """
    if _Ending.current is not None and _Ending.current.received is not None:
        raise KeyboardInterrupt


class _Ending:
    """While entered, the signals that end a program raise KeyboardInterrupt.

    Attributes:
      current: the one that is entered, if any.
      received: the signal that came; None if none did.
    """

    current: ClassVar["_Ending | None"] = None

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}
        self._stderr: int | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        _Ending.current = self
        self._stderr = os.dup(2)  # the import of TensorFlow sends the number 2 nowhere
        for number in _ENDINGS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._raise)

    def __exit__(self, *exception: object) -> None:
        _Ending.current = None
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` returned
        if self._stderr is not None:
            os.close(self._stderr)

    def _raise(self, number: int, frame: FrameType | None) -> NoReturn:
        self.received = signal.Signals(number)
        if _is_importing(frame) and not is_writing():
            # Nothing is to be cleaned up yet. An import that an exception ends may crash in C code,
            # or drop the exception where Python has nobody to pass it to.
            line, status = _describe_interruption(KeyboardInterrupt(), self.received)
            os.write(self._stderr or 2, f"{error_line(line)}\n".encode())
            os._exit(status)
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one that called it, is Python's import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
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
        return error.spelled(error.spell or as_option), 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, BrokenPipeError):  # as `| head` ends; nobody reads on
        return "", 128 + signal.SIGPIPE
    return _describe_foreseen(error) or _describe_bug(error), 1


def _describe_interruption(error: BaseException, received: signal.Signals) -> tuple[str, int]:
    """An interruption; the text of a KeyboardInterrupt says what became of the output."""
    by = "" if received == signal.SIGINT else f" by {received.name}"
    outcome = str(error) if isinstance(error, KeyboardInterrupt) else ""
    return "; ".join(filter(None, [f"interrupted{by}", outcome])), 128 + received


def _describe_foreseen(error: Exception) -> str | None:
    """A failure of the machine; None for any other error."""
    if isinstance(error, MemoryError):  # those of NumPy and pyarrow are subclasses
        return f"out of memory: {_first_line(error)}; {_LESS_MEMORY}"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return _NO_THREAD
    if isinstance(error, OSError):
        return _REFUSED.get(error.errno)
    if isinstance(error, ImportError) and _NO_ROOM in str(error):
        return f"out of memory: {_first_line(error)}"
    if not _DEVICE_ERRORS.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        text = f"the device failed: {_first_line(error)}"
        return f"{text}; {_LESS_MEMORY}" if _is_exhausted(error) else text
    return None


def _is_exhausted(error: Exception) -> bool:
    return type(error).__name__ == "ResourceExhaustedError" or "RESOURCE_EXHAUSTED" in str(error)


def _describe_bug(error: Exception) -> str:
    url = _project_url()
    where = f" at {url}" if url else ""
    return (
        f"this is a bug: {_first_line(error)}; please report it with the output of --debug{where}"
    )


def _project_url() -> str | None:
    try:
        about = importlib.metadata.metadata("bert_features")
    except importlib.metadata.PackageNotFoundError:  # a copy of the sources on PYTHONPATH
        return None
    return next(iter(about.get_all("Home-page") or ()), None)


def _first_line(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "no message")
    return f"{type(error).__name__}: {line}"[:_MAX_CHARACTERS]


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _can_flush() -> bool:
    try:
        _flush()
    except OSError:
        return False
    return True


def _fail(line: str, status: int, *, debug: bool) -> NoReturn:
    if not _can_flush():
        _discard_output()
    with contextlib.suppress(OSError):  # standard error may be gone too
        trace = traceback.format_exc() if debug else ""
        if line:
            print(error_line(line, trace), file=sys.stderr)
        elif trace:
            print(trace, end="", file=sys.stderr)
    raise typer.Exit(status)


def leave(status: int | str) -> NoReturn:
    """Ends the process of a command that failed, without waiting for the threads of libraries.

    One of them may be inside TensorFlow, reading ahead. When Python ends while such a thread asks
    for its lock, the thread is ended within C++ code, which aborts the process.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def _discard_output() -> None:
    """Sends what standard output still holds nowhere: Python would complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def secure_standard_streams() -> None:
    """Keeps files from taking the place of a closed standard stream.

    The first file that is opened would get its number, and whatever a library prints would go into
    that file.

    Raises:
      BertFeaturesError: standard output is closed, so that results would be lost.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for the rest of the process
    if sys.stdout is None:
        raise BertFeaturesError(
            "standard output is closed; redirect it to a file, or to /dev/null if nobody needs it"
        )
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # The name of a file, or a piece, that the terminal's encoding lacks ends no command.
        sys.stdout.reconfigure(errors="backslashreplace")
