"""Findings from the child processes: imports, and the numbers of JAX on a CPU."""

from collections.abc import Mapping

from bert_features.doctor.finding import Finding, Status
from bert_features.doctor.runtimes import Outcome, Runtimes
from bert_features.machine.jax_on_cpus import INSTALL

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
    if problem and "Unknown backend" not in problem:  # JAX_PLATFORMS names others
        return [Finding("numbers of JAX", "warning", f"on a CPU: {problem}", INSTALL)]
    if not found or found["right"]:
        return [Finding("numbers of JAX", "ok", "right on a CPU")] if found else []
    told = (
        f"jaxlib {found['version']} computes wrong ones on CPUs (github.com/jax-ml/jax/issues/"
        "39103); bert_features avoids what is at fault, Keras models of yours do not"
    )
    return [Finding("numbers of JAX", "note", told, INSTALL)]
