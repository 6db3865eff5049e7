"""verify passes for small checkpoints of other families."""

import pytest

from tests import families
from tests.verify.reports import leave_checks, outcomes, verify_toy


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", families.RELATIVES)
def test_verify_passes(name, tmp_path, monkeypatch):
    """On TensorFlow; tests/runtime/test_jax.py has JAX."""
    checks = ["reference", *(["padding"] if name in ("albert", "modernbert") else [])]
    leave_checks(monkeypatch, *checks)
    report = verify_toy(families.folder(name, tmp_path))
    assert outcomes(report)["pass"] == {*checks}, report
