"""Signals that end a program: they end a command or a call, whatever code they come in.

Python drops an exception where it has no caller to pass it to, as in the callback of the garbage
collector that JAX sets as it is imported; and libraries make other errors of KeyboardInterrupt.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

# The signal that came in a command, or in a block of `interruptible`; None if none did.
received: signal.Signals | None = None


def interrupt(number: int, frame: FrameType | None = None) -> NoReturn:
    """Notes a signal and raises KeyboardInterrupt."""
    del frame
    global received
    received = signal.Signals(number)
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if a signal came and the command or the call still runs."""
    if received is not None:
        raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C surely ends the block, or a function that this decorates, unless it is handled."""
    global received
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received = None
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
        raise_if_interrupted()
    except Exception:
        raise_if_interrupted()
        raise
    finally:
        received = None
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Signals that end a program do so without cleanup in the block, also in C code that waits."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
