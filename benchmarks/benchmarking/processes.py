"""The processes of the benchmark: one worker for each program, and commands that run once."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarking.programs import PROGRAMS

_BENCHMARKS = Path(__file__).resolve().parents[1]
_ENDING_SECONDS = 1.0
# Thread pools spin for a while after their last work.
_SETTLING_SECONDS = 0.3
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """The benchmark cannot continue; the message is for the user."""


def environment() -> dict[str, str]:
    """The environment of every process: this folder on the path, no network, tokenizers threads."""
    return {
        **os.environ,
        "PYTHONPATH": str(_BENCHMARKS),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def python_of(program: str) -> str:
    """The interpreter that runs a program: this one, or that of the program's environment."""
    environment = PROGRAMS[program].environment
    if environment is None:
        return sys.executable
    return str(_BENCHMARKS.parent / f".venv-benchmark-{environment}" / "bin" / "python")


class Worker:
    """A program in a separate process; a context manager.

    Args:
      program: name of the program.
      log: file for the program's output.

    Raises:
      BenchmarkError: a command failed.
    """

    def __init__(self, program: str, log: Path) -> None:
        self.program = program
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [python_of(program), "-m", "benchmarking.worker", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment(),
            )

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if not answer and self._ended():
            answer = {"error": f"the process ended with status {self._process.returncode}"}
        if "error" in answer:
            raise BenchmarkError(f"{self.program}: {answer['error']}; its log is {self._log}")
        return answer

    def _ended(self) -> bool:
        """Whether the process has ended; an empty answer alone does not show that."""
        try:
            return self._process.wait(timeout=_ENDING_SECONDS) is not None
        except subprocess.TimeoutExpired:
            return False

    def cpu_seconds(self) -> float:
        """CPU time of all threads of the process so far."""
        return cpu_seconds(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Idling:
    """Measures how much of a core waiting workers use."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._workers = list(workers)
        self.worst: dict[str, float] = {}

    def run(self, worker: Worker, do: str, **arguments: Any) -> dict[str, Any]:
        """Runs a command of one worker and measures the others meanwhile."""
        time.sleep(_SETTLING_SECONDS)
        others = {other: other.cpu_seconds() for other in self._workers if other is not worker}
        started = time.perf_counter()
        answer = worker(do, **arguments)
        seconds = time.perf_counter() - started
        for other, before in others.items():
            share = (other.cpu_seconds() - before) / seconds
            self.worst[other.program] = max(share, self.worst.get(other.program, 0.0))
        return answer


def run(arguments: Sequence[str | Path], **variables: str) -> str:
    """Runs a command to its end and returns its standard output.

    Args:
      arguments: the command.
      **variables: further variables of its environment.

    Raises:
      BenchmarkError: the command failed.
    """
    result = subprocess.run(
        [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        env=environment() | variables,
        check=False,
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(f"{' '.join(map(str, arguments))} failed: {last}")
    return result.stdout


def run_module(module: str, *arguments: str | Path, **variables: str) -> str:
    """Runs a module of this folder; see `run`."""
    return run([sys.executable, "-m", f"benchmarking.{module}", *arguments], **variables)


def peak_of(arguments: Sequence[str | Path]) -> tuple[int, float]:
    """Runs a command to its end; returns its peak resident memory in bytes, and its seconds.

    Raises:
      BenchmarkError: the command failed.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [str(argument) for argument in arguments], stdout=subprocess.DEVNULL, env=environment()
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkError(f"{' '.join(map(str, arguments))}: status {process.returncode}")
    return usage.ru_maxrss * 1024, time.perf_counter() - started


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """The median, the minimum and the maximum of values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def say(text: str) -> None:
    """Prints a line of progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
