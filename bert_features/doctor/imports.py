"""Findings from the child processes: imports."""

from collections.abc import Mapping

from bert_features.doctor.children import Outcome
from bert_features.doctor.finding import Finding, Status
from bert_features.doctor.runtimes import Runtimes

# Package -> the checks whose findings explain why its import fails, the likeliest first.
_CAUSES = {
    "tensorflow": ("tensorflow", "libtpu", "needs of tensorflow", "needs of tensorflow-tpu"),
    "tensorflow_text": ("tensorflow-text", "tensorflow"),
    "keras": ("keras", "needs of keras"),
    "jax": ("needs of jax", "needs of jaxlib"),
}


def check_imports(runtimes: Runtimes, remedies: Mapping[str, str]) -> list[Finding]:
    """Whether TensorFlow, tensorflow-text, Keras and JAX can be imported.

    Args:
      runtimes: what the child processes reported.
      remedies: check of an installed package -> the command that fixes it. If a package is wrong,
        it is the likeliest reason for an import to fail.
    """
    minor, force = runtimes.tensorflow_minor, "pip install --force-reinstall --no-deps"
    last_resort = {
        "tensorflow": f"{force} '{runtimes.tensorflow_build}=={minor}.*'",
        "tensorflow_text": f"{force} 'tensorflow-text=={minor}.*'",
        "keras": f"{force} keras",
        "jax": "pip install -U jax",
    }
    commands = {
        package: next((remedies[cause] for cause in causes if cause in remedies), None)
        or last_resort[package]
        for package, causes in _CAUSES.items()
    }
    asked: tuple[tuple[str, str, Outcome | None, Status], ...] = (
        ("import tensorflow", "tensorflow", runtimes.tensorflow, "broken"),
        ("import tensorflow_text", "tensorflow_text", runtimes.tensorflow, "broken"),
        ("import keras", "keras", runtimes.tensorflow, "broken"),
        ("import jax", "jax", runtimes.jax, "warning"),
        ("import keras on JAX", "keras", runtimes.jax, "warning"),
    )
    findings = [
        _check_import(name, package, outcome, status, commands[package])
        for name, package, outcome, status in asked
        if outcome is not None
    ]
    return [finding for finding in findings if finding is not None]


def _check_import(
    name: str, package: str, outcome: Outcome, status: Status, remedy: str
) -> Finding | None:
    if package in outcome.results:
        details = {"seconds_of_process": round(outcome.seconds, 1)}
        return Finding(name, "ok", str(outcome.results[package]["version"]), details=details)
    problem = outcome.problem(package)
    if problem is None and outcome.ended_in == "start" and package in ("tensorflow", "jax"):
        problem = outcome.ending
    if problem is None:  # not reached, because of another import that is reported
        return None
    return Finding(name, status, problem, remedy)
