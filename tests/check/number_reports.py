"""What `check_numbers` finds, and the shortest way to it."""

from bert_features.check import numbers
from bert_features.check.numbers import check_numbers


def leave_checks(monkeypatch, *names):
    """Leaves some of the checks; `numbers` has the table under its own name."""
    monkeypatch.setattr(numbers, "CHECKS", {name: numbers.CHECKS[name] for name in names})


def statuses(findings):
    """The names of the checks by their status."""
    found = {"ok": set(), "broken": set(), "note": set()}
    for finding in findings[1:]:  # the first says what computes
        found[finding.status].add(finding.check.partition(",")[0])
    return found


def finding_named(findings, name):
    (finding,) = [each for each in findings if each.check.partition(",")[0] == name]
    return finding


def check_toy(toy, **settings):
    given = {"precisions": ("float32",), **settings}
    return list(check_numbers(toy, do_lower_case=True, **given))
