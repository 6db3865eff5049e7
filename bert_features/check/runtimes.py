"""What TensorFlow and JAX report of themselves, each in a child process, however that ends.

And the findings from it: about imports, and about the numbers of JAX on a CPU.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bert_features.check.finding import Finding, Status
from bert_features.errors import describe_exit
from bert_features.files import local_path
from bert_features.machine.jax_on_cpus import INSTALL
from bert_features.machine.tpu_errors import explain

# Google's TPU machines have a server that describes the TPU. Elsewhere libtpu asks for it as well,
# each question up to 30 times: where the network answered 403, `import tensorflow` (TPU build
# 2.20.0, libtpu 0.0.30) had not ended after 6 minutes. With this variable set it took 8 s.
METADATA_VARIABLE = "TPU_SKIP_MDS_QUERY"
# What logs put before their message: a time, the severity, a file and a line.
_FATAL = re.compile(r"^(?:\S+ \S+: )?F\d* ?[^]]*\] ?(?P<message>.*)$")
_LOG = re.compile(
    r"^(?:\S+ \S+: [IWE] |[IWE]\d{4} |WARNING: All log messages before absl)"
    # libtpu's traces: a heading, then a file and a line each.
    r"|^=== Source Location Trace|^\S+\.cc:\d+$"
)
_MAX_CHARACTERS = 300
# The process ends itself when its time is over; what it has started may hold its pipes open.
_GRACE_SECONDS = 2.0
# Package -> the checks whose findings explain why its import fails, the likeliest first; and the
# command if there are none.
_CAUSES = {
    "tensorflow": ("tensorflow", "libtpu", "needs of tensorflow", "needs of tensorflow-tpu"),
    "tensorflow_text": ("tensorflow-text", "tensorflow"),
    "keras": ("keras", "needs of keras"),
    "jax": ("needs of jax", "needs of jaxlib"),
}
_FORCE = "pip install --force-reinstall --no-deps"
_LAST_RESORT = {
    "tensorflow": f"{_FORCE} '{{build}}=={{minor}}.*'",
    "tensorflow_text": f"{_FORCE} 'tensorflow-text=={{minor}}.*'",
    "keras": f"{_FORCE} keras",
    "jax": "pip install -U jax",
}


@dataclass(frozen=True)
class Outcome:
    """What a child process reported, and how it ended; empty if none was started.

    Attributes:
      results: stage -> its result, for stages that succeeded.
      errors: stage -> its error message, for stages that raised an exception.
      ended_in: the stage in which the process died or was killed; None if all stages ended.
      ending: how the process died, with the last line it wrote; empty if all stages ended.
    """

    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    ended_in: str | None = None
    ending: str = ""
    seconds: float = 0.0

    def problem(self, stage: str) -> str | None:
        """Why a stage has no result; None if it has one or was never reached."""
        return self.ending if stage == self.ended_in else self.errors.get(stage)


@dataclass(frozen=True)
class Runtimes:
    """What the two runtimes reported.

    Attributes:
      tensorflow_build: name of the distribution that installed TensorFlow.
      tensorflow_minor: version of that distribution, as 2.20.
    """

    tensorflow: Outcome = Outcome()
    jax: Outcome = Outcome()
    tensorflow_build: str = "tensorflow"
    tensorflow_minor: str = "2.20"

    def devices(self, kind: str) -> dict[str, list[Mapping[str, Any]]]:
        """Runtime -> its devices of a kind, `tpu` or `gpu`; runtimes without any are left out."""
        jax_devices = self.jax.results.get("devices", {}).get("devices", [])
        every = {
            "TensorFlow": self.tensorflow.results.get(kind, {}).get("devices", []),
            "JAX": [device for device in jax_devices if device["platform"] == kind],
        }
        return {runtime: devices for runtime, devices in every.items() if devices}

    def problems(self, kind: str) -> str:
        """Why the runtimes could not list devices of a kind; empty if no runtime failed."""
        problems = {"TensorFlow": self.tensorflow.problem(kind), "JAX": self.jax.problem("devices")}
        return "; ".join(f"{runtime}: {text}" for runtime, text in problems.items() if text)


def ask(runtime: str, environment: Mapping[str, str], seconds: float, *, with_tpu: bool) -> Outcome:
    """Runs the child process of a runtime with these environment variables; see `child.main`."""
    command = [sys.executable, "-m", "bert_features.check.child", runtime, str(seconds)]
    environment = {
        # Only errors: the last line should say why the process ended.
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **environment,
        # The child must find the same packages as this process, however this one was started.
        "PYTHONPATH": os.pathsep.join(str(local_path(path)) for path in sys.path),
        "PYTHONSAFEPATH": "1",
    }
    started = time.monotonic()
    with subprocess.Popen(
        command + ["--with-tpu"] * with_tpu,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)  # what it has started holds the pipes as well
            output, errors = process.communicate()
        finally:
            _kill_group(process.pid)  # what it has started may outlive it without the pipes
    if process.returncode in (-signal.SIGALRM, -signal.SIGKILL):
        ending = f"did not finish within {seconds:g} s"
    elif process.returncode < 0:
        ending = f"the process died of {describe_exit(process.returncode)}"
    else:
        ending = f"the process ended with status {process.returncode}"
    ending = ": ".join(filter(None, [ending, last_words(errors)]))
    return _outcome(output, ending, time.monotonic() - started)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # every process has ended
        os.killpg(group, signal.SIGKILL)


def _outcome(output: str, ending: str, seconds: float) -> Outcome:
    results: dict[str, Mapping[str, Any]] = {}
    errors: dict[str, str] = {}
    open_stage: str | None = "start"
    for message in map(json.loads, output.splitlines()):
        open_stage = None
        if "result" in message:
            results[message["stage"]] = message["result"]
        elif "error" in message:
            errors[message["stage"]] = message["error"]
        else:
            open_stage = message["stage"]
    return Outcome(results, errors, open_stage, ending if open_stage else "", seconds)


def last_words(stderr: str) -> str:
    """The line of standard error that says why: a known one, a log's fatal one, or the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [match["message"] for line in lines if (match := _FATAL.match(line))]
    plain = [line for line in lines if not _LOG.match(line)]
    known = [line for line in (*lines, *fatal) if explain(line)]
    return (known or fatal or plain or lines or [""])[-1][:_MAX_CHARACTERS]


def check_imports(runtimes: Runtimes, remedies: Mapping[str, str]) -> list[Finding]:
    """Whether TensorFlow, tensorflow-text, Keras and JAX can be imported.

    If a package is wrong, it is the likeliest reason for an import to fail: `remedies` has the
    commands that fix such packages, by their checks.
    """
    asked: tuple[tuple[str, str, Outcome, Status], ...] = (
        ("import tensorflow", "tensorflow", runtimes.tensorflow, "broken"),
        ("import tensorflow_text", "tensorflow_text", runtimes.tensorflow, "broken"),
        ("import keras", "keras", runtimes.tensorflow, "broken"),
        ("import jax", "jax", runtimes.jax, "warning"),
        ("import keras on JAX", "keras", runtimes.jax, "warning"),
    )
    findings = []
    for name, package, outcome, status in asked:
        problem = outcome.problem(package)
        if outcome.ended_in == "start" and package in ("tensorflow", "jax"):
            problem = outcome.ending
        if package in outcome.results:
            version = str(outcome.results[package]["version"])
            details = {"seconds_of_process": round(outcome.seconds, 1)}
            findings.append(Finding(name, "ok", version, details=details))
        elif problem is not None:  # else not reached, because of another import that is reported
            causes = [remedies[cause] for cause in _CAUSES[package] if cause in remedies]
            build, minor = runtimes.tensorflow_build, runtimes.tensorflow_minor
            last_resort = _LAST_RESORT[package].format(build=build, minor=minor)
            findings.append(Finding(name, status, problem, (causes or [last_resort])[0]))
    return findings


def check_jax_numbers(runtimes: Runtimes) -> list[Finding]:
    """Whether JAX computes right numbers on a CPU, if it can be used there."""
    problem, found = runtimes.jax.problem("numbers"), runtimes.jax.results.get("numbers")
    # JAX_PLATFORMS names others, and of those that do not start, the listing of devices says it.
    if problem and not re.search("Unknown backend|Unable to initialize backend", problem):
        return [Finding("numbers of JAX", "warning", f"on a CPU: {problem}", INSTALL)]
    if not found or found["right"]:
        return [Finding("numbers of JAX", "ok", "right on a CPU")] if found else []
    fault = (
        f"jaxlib {found['version']} computes wrong ones on CPUs (github.com/jax-ml/jax/issues/"
        "39103); runs of bert_features avoid that, your own Keras models on JAX do not"
    )
    return [Finding("numbers of JAX", "note", fault, INSTALL)]
