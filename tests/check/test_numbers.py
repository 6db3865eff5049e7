"""check_numbers() and `doctor --numbers` on devices that are right, and errors before any check."""

import json
import os
import subprocess
import sys

import pytest

from bert_features.check import comparisons
from bert_features.check.finding import Finding
from bert_features.check.tolerances import TOLERANCES, Tolerance
from tests.check.number_reports import check_toy, finding_named, leave_checks, statuses
from tests.cli.command_line import run
from tests.conftest import NUM_DEVICES

pytestmark = pytest.mark.eight_devices


@pytest.fixture(autouse=True)
def installation(monkeypatch):
    """What is found of the installation, which takes seconds; a test may add to it."""
    found = [Finding("python", "ok", "made up")]
    monkeypatch.setattr("bert_features.cli.doctor.examine", lambda output, seconds: [*found])
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_the_embedded_model_passes_in_float32(minilm_dir):
    result = run("doctor", "--numbers", "--device", "cpu", "--precision", "float32", "--json")
    assert result.exit_code == 0, result.output
    _, computing, *found = json.loads(result.stdout)["findings"]
    assert computing["found"] == "minilm on the CPU by tensorflow"
    rows = {finding["check"]: finding for finding in found}
    assert list(rows) == [f"{name}, float32" for name in comparisons.CHECKS]
    row = rows.pop("devices, float32")
    assert (row["status"], row["found"]) == ("note", "there is one device")
    for row in rows.values():
        assert row["status"] == "ok"
        assert TOLERANCES["float32"].allows(row["details"]["measured"])
    assert rows["padding, float32"]["found"].endswith("padded to 32, 64, 128, 256, 512")


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_the_embedded_model_passes_in_bfloat16(minilm_dir, monkeypatch):
    leave_checks(monkeypatch, "golden values", "reference", "batch")
    result = run("doctor", "--numbers", "--device", "cpu", "--precision", "bfloat16")
    assert result.exit_code == 0, result.output
    _, _, *rows, summary = result.stdout.splitlines()
    assert summary == "0 broken, 0 warnings"
    assert [row.split()[0] for row in rows] == ["ok"] * 3
    assert all(", bfloat16 " in row and ", at least 0.999: " in row for row in rows)


@pytest.mark.usefixtures("one_device")
def test_a_wrong_number_ends_with_status_1(toy, monkeypatch):
    leave_checks(monkeypatch, "determinism")
    monkeypatch.setitem(TOLERANCES, "float32", Tolerance("deviation", -1.0))
    result = run("doctor", "--numbers", toy, "--uncased", "--precision", "float32")
    assert result.exit_code == 1, result.output
    *_, row, summary = result.stdout.splitlines()
    assert row.startswith("broken   determinism, float32")
    assert summary == "1 broken, 0 warnings"


def test_where_the_installation_is_broken_nothing_is_computed(installation, monkeypatch):
    installation.append(Finding("keras", "broken", "keras is not installed"))
    monkeypatch.setattr("bert_features.cli.doctor._numbers", None)
    result = run("doctor", "--numbers")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "1 broken, 0 warnings"


@pytest.mark.slow
@pytest.mark.release
def test_every_device_is_checked(toy, monkeypatch):
    leave_checks(monkeypatch, "golden values", "devices", "batch")
    findings = check_toy(toy)
    assert findings[0].found.endswith(f" on {NUM_DEVICES} CPU devices by tensorflow")
    assert statuses(findings) == {
        "ok": {"devices", "batch"},
        "broken": set(),
        "note": {"golden values"},
    }
    devices = finding_named(findings, "devices")
    assert devices.found.endswith(f"a text on each of {NUM_DEVICES} devices with the first")
    assert 0 <= devices.details["measured"] <= devices.details["limit"] == 1e-5


@pytest.mark.slow
@pytest.mark.release
def test_the_jax_runtime_passes_on_several_devices(toy):
    command = [sys.executable, "-m", "bert_features", "doctor", "--numbers", toy, "--uncased"]
    result = subprocess.run(
        [*command, "--runtime", "jax", "--device", "cpu", "--precision", "float32", "--json"],
        # Little is computed, so the compiler may leave it slow.
        env=os.environ
        | {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2 "
            "--xla_backend_optimization_level=0"
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    found = {finding["check"]: finding for finding in report["findings"]}
    facts = found["numbers"]["details"]
    assert (facts["runtime"], facts["device"], facts["devices"]) == ("jax", "cpu", 2)
    passed = dict.fromkeys(comparisons.CHECKS, "ok")
    received = {name: found[f"{name}, float32"]["status"] for name in passed}
    assert received == passed | {"golden values": "note"}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--numbers", "nowhere"], 1, "bert-features: there is no checkpoint 'nowhere'"),
        (["--numbers", "--device", "gpu"], 2, "bert-features: no GPU"),
        (["toy", "--device", "cpu"], 2, "bert-features: CHECKPOINT, --device without --numbers"),
        (["--precision", "float32"], 2, "bert-features: --precision without --numbers"),
    ],
)
def test_errors_are_one_line(minilm_dir, arguments, status, message):
    result = run("doctor", *arguments)
    assert result.exit_code == status, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(message)
