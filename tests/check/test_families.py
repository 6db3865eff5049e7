"""The numbers are right for small checkpoints of other families."""

import pytest

from tests import families
from tests.check.number_reports import check_toy, leave_checks, statuses


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("name", families.RELATIVES)
def test_the_numbers_are_right(name, tmp_path, monkeypatch):
    """On TensorFlow; tests/runtime/test_jax.py has JAX."""
    checks = ["reference", *(["padding"] if name in ("albert", "modernbert") else [])]
    leave_checks(monkeypatch, *checks)
    findings = check_toy(families.folder(name, tmp_path))
    assert statuses(findings)["ok"] == {*checks}, findings
