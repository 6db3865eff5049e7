"""verify passes for small checkpoints of other families."""

import pytest

from tests import families
from tests.verify.reports import leave_checks, outcomes, verify_toy


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["albert", "modernbert"])
def test_verify_passes(name, tmp_path, monkeypatch):
    leave_checks(monkeypatch, "reference", "padding")
    report = verify_toy(families.folder(name, tmp_path))
    assert outcomes(report)["pass"] == {"reference", "padding"}, report
