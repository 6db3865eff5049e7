"""Runs the child processes and reads what they told, however they ended."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What logs put before their message: a time, the severity, a file and a line.
_FATAL = re.compile(r"^(?:\S+ \S+: )?F\d* ?[^]]*\] ?(?P<message>.*)$")
_LOG = re.compile(
    r"^(?:\S+ \S+: [IWE] |[IWE]\d{4} |WARNING: All log messages before absl)"
    # libtpu's traces: a heading, then a file and a line each.
    r"|^=== Source Location Trace|^\S+\.cc:\d+$"
)
_LONGEST = 300


@dataclass(frozen=True)
class Outcome:
    """What a child process told, and how it ended.

    Attributes:
      results: stage -> its result, of those that succeeded.
      errors: stage -> what went wrong, of those that raised an exception.
      ended_in: the stage in which the process ended or was ended; None if it came to its end.
      ending: how: a signal, a status, a time that ran out, with the last line it wrote.
      seconds: that it took.
    """

    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    ended_in: str | None = None
    ending: str = ""
    seconds: float = 0.0

    def why_not(self, stage: str) -> str | None:
        """Why a stage has no result; None if it has one, or was never come to."""
        return self.ending if stage == self.ended_in else self.errors.get(stage)


class Child:
    """A module of this package, running in a process of its own.

    Args:
      module: the name of the module, in bert_features.doctor.
      arguments: for it.
      environment: of the process; that of this one if None.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        environment = dict(os.environ if environment is None else environment)
        # It is to find the packages that this process finds, whichever way this one was started.
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment["PYTHONSAFEPATH"] = "1"
        # Errors only, and fatal ones: the last line is to be of why it ended.
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bert_features.doctor.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,  # so that its own children can be ended with it
        )

    def wait(self, seconds: float) -> Outcome:
        """Its outcome; it is killed when that many seconds have passed since it was started."""
        left = max(0.0, self._started + seconds - time.monotonic())
        try:
            output, errors = self._process.communicate(timeout=left)
            too_slow = False
        except subprocess.TimeoutExpired:
            self.kill()
            output, errors = self._process.communicate()
            too_slow = True
        ending = _ending(self._process.returncode, errors, seconds if too_slow else None)
        return _outcome(output, ending, time.monotonic() - self._started)

    def kill(self) -> None:
        """Ends it and its own children, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _outcome(output: str, ending: str, seconds: float) -> Outcome:
    results: dict[str, Mapping[str, Any]] = {}
    errors: dict[str, str] = {}
    open_stage: str | None = "start"
    for line in output.splitlines():
        message = json.loads(line)
        open_stage = None
        if "result" in message:
            results[message["stage"]] = message["result"]
        elif "error" in message:
            errors[message["stage"]] = message["error"]
        else:
            open_stage = message["stage"]
    return Outcome(results, errors, open_stage, ending if open_stage else "", seconds)


def _ending(status: int, stderr: str, ran_out_after: float | None) -> str:
    said = last_words(stderr)
    said = f": {said}" if said else ""
    if ran_out_after is not None:
        return f"did not end within {ran_out_after:g} s{said}"
    if status < 0:
        return f"the process died of {_signal_name(-status)}{said}"
    return f"the process ended with status {status}{said}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(stderr: str) -> str:
    """The line of standard error that says why: the fatal one of a log, or the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [match["message"] for line in lines if (match := _FATAL.match(line))]
    plain = [line for line in lines if not _LOG.match(line)]
    return (fatal or plain or lines or [""])[-1][:_LONGEST]
