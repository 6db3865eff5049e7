"""Runs the child processes and reads their reports, however they ended."""

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
_MAX_CHARACTERS = 300


@dataclass(frozen=True)
class Outcome:
    """What a child process reported, and how it ended.

    Attributes:
      results: stage -> its result, for stages that succeeded.
      errors: stage -> its error message, for stages that raised an exception.
      ended_in: the stage in which the process died or was killed; None if all stages ended.
      ending: how the process died, with the last line it wrote; empty if all stages ended.
      seconds: time from start to end.
    """

    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    ended_in: str | None = None
    ending: str = ""
    seconds: float = 0.0

    def problem(self, stage: str) -> str | None:
        """Why a stage has no result; None if it has one or was never reached."""
        return self.ending if stage == self.ended_in else self.errors.get(stage)


class Child:
    """A module of this room, running in a separate process.

    Args:
      module: name of the module in bert_features.doctor.
      arguments: command-line arguments of the module.
      environment: environment variables of the process; None takes those of this process.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        environment = dict(os.environ if environment is None else environment)
        # The child must find the same packages as this process, however this one was started.
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment["PYTHONSAFEPATH"] = "1"
        # Only errors: the last line should say why the process ended.
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
            start_new_session=True,  # so that its children can be killed with it
        )

    def wait(self, seconds: float) -> Outcome:
        """Waits for the outcome; kills the process if it runs longer than `seconds`."""
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
        """Kills the process and its children, if they still run."""
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


def _ending(status: int, stderr: str, time_limit: float | None) -> str:
    line = last_words(stderr)
    reason = f": {line}" if line else ""
    if time_limit is not None:
        return f"did not finish within {time_limit:g} s{reason}"
    if status < 0:
        return f"the process died of {_signal_name(-status)}{reason}"
    return f"the process ended with status {status}{reason}"


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
    return (fatal or plain or lines or [""])[-1][:_MAX_CHARACTERS]
