"""What a report says, and the shortest way to one."""

from bert_features.verify import run
from bert_features.verify.run import verify


def leave_checks(monkeypatch, *names):
    """Leaves some of the checks; `run` has the table under its own name."""
    monkeypatch.setattr(run, "CHECKS", {name: run.CHECKS[name] for name in names})


def outcomes(report):
    """The names of the checks by their outcome."""
    found = {"pass": set(), "fail": set(), "skipped": set()}
    for check in report.checks:
        found[check.outcome].add(check.name)
    return found


def check_named(report, name):
    (check,) = [check for check in report.checks if check.name == name]
    return check


def verify_toy(toy, **settings):
    return verify(toy, do_lower_case=True, **({"precisions": ("float32",)} | settings))
