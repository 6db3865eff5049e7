"""The command line in forks of a process that has imported TensorFlow, which takes seconds.

That process is the fork server of Python's `multiprocessing`. It imports and does nothing else, and
has no thread but those of libraries that provide for forks, so a fork of it is as good as a process
of its own. What a test says of the imports themselves needs `tests.cli.command_line.program`.
"""

import contextlib
import multiprocessing
import os
import resource
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.cli.preloaded"])


@contextlib.contextmanager
def fork(
    *arguments: object,
    stdin: Path | str = os.devnull,
    stdout: Path | str = os.devnull,
    stderr: Path | str = os.devnull,
    max_file_size: int | None = None,
) -> Iterator[BaseProcess]:
    """Runs a command in a fork; it is killed if it has not ended with the block.

    Args:
      stdin, stdout, stderr: files, or pipes that have a name.
      max_file_size: no file may grow beyond this number of bytes, as on a full disk.
    """
    streams = [str(stdin), str(stdout), str(stderr)]
    process = _FORKS.Process(target=_run, args=([*map(str, arguments)], streams, max_file_size))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def call_in_fork(function: Callable[..., None], *arguments: object) -> None:
    """Calls a function of a test's module in a fork, and waits for its end."""
    process = _FORKS.Process(target=function, args=arguments)
    process.start()
    process.join(600)
    assert process.exitcode == 0


def run_script(script: Path, arguments: list[str], stderr: Path) -> None:
    """Runs a script as a command, in the process of `call_in_fork`."""
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
    sys.argv, sys.stderr = [str(script), *arguments], open(2, "w")  # noqa: SIM115
    runpy.run_path(str(script), run_name="__main__")


def _run(arguments: list[str], streams: list[str], max_file_size: int | None) -> None:
    for number, (path, flags) in enumerate(zip(streams, ("r", "w", "w"), strict=True)):
        mode = os.O_RDONLY if flags == "r" else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(path, mode), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    # As of a process that is started where nobody ignores a signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_DFL)
    if max_file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_size, max_file_size))
    from bert_features.__main__ import main

    sys.argv = ["bert-features", *arguments]
    main()
