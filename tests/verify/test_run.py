"""verify() and its command on devices that are right, and errors before any check."""

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bert_features.cli import app
from bert_features.errors import CheckpointError, ConfigError
from bert_features.verify import checks, other_runtime
from bert_features.verify import run as run_module
from bert_features.verify.comparison import TOLERANCES
from bert_features.verify.run import verify
from tests.conftest import NUM_DEVICES
from tests.verify.reports import check_named, leave_checks, outcomes, verify_toy

pytestmark = pytest.mark.eight_devices


def run(*arguments):
    return CliRunner().invoke(app, ["verify", *arguments])


def rows_of_the_command(precision):
    """The cells of each row, and the last line."""
    result = run("--device", "cpu", "--precision", precision)
    assert result.exit_code == 0, result.output
    head, *rows, blank, summary = result.stdout.splitlines()
    assert head.split() == ["check", "precision", "result", "measured", "allowed", "compared"]
    assert blank == ""
    cells = [re.split(r"  +", row) for row in rows]
    assert [row[:2] for row in cells] == [[name, precision] for name in run_module.CHECKS]
    return {name: row for name, _, *row in cells}, summary


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "alone")
def test_the_embedded_model_passes_in_float32(minilm_dir):
    rows, summary = rows_of_the_command("float32")
    assert summary == "minilm on the CPU, tensorflow runtime: 6 passed, 3 skipped"
    reasons = {
        "devices": "there is one device",
        "attention": "the Pallas kernel is for TPUs with the JAX runtime",
        "runtimes": "jax is left out",
    }
    for name, reason in reasons.items():
        assert rows.pop(name) == ["skipped", "-", "-", reason]
    for outcome, measured, allowed, _ in rows.values():
        assert (outcome, allowed) == ("pass", "<= 1e-05")
        assert TOLERANCES["float32"].allows(float(measured))
    assert rows["padding"][-1].endswith("padded to 32, 64, 128, 256, 512")


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "alone")
def test_the_embedded_model_passes_in_bfloat16(minilm_dir, monkeypatch):
    leave_checks(monkeypatch, "golden values", "reference", "batch")
    rows, summary = rows_of_the_command("bfloat16")
    assert summary == "minilm on the CPU, tensorflow runtime: 3 passed"
    for outcome, measured, allowed, _ in rows.values():
        assert (outcome, allowed) == ("pass", ">= 0.999")
        assert TOLERANCES["bfloat16"].allows(float(measured))


@pytest.mark.slow
@pytest.mark.release
def test_every_device_and_the_other_runtime_are_checked(toy, monkeypatch):
    leave_checks(monkeypatch, "golden values", "devices", "batch", "runtimes")
    report = verify_toy(toy)
    assert (report.device, report.device_count) == ("cpu", NUM_DEVICES)
    assert outcomes(report) == {
        "pass": {"devices", "batch", "runtimes"},
        "fail": set(),
        "skipped": {"golden values"},
    }
    assert check_named(report, "runtimes").compared == "tensorflow here with jax on the CPU"
    devices = check_named(report, "devices")
    assert devices.compared == f"a text on each of {NUM_DEVICES} devices with the first"
    assert 0 <= devices.measured <= devices.limit == 1e-5


@pytest.mark.slow
@pytest.mark.release
def test_the_jax_runtime_passes_on_several_devices(toy):
    command = [sys.executable, "-m", "bert_features", "verify", toy, "--uncased", "--json"]
    result = subprocess.run(
        [*command, "--runtime", "jax", "--device", "cpu", "--precision", "float32"],
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
    assert (report["runtime"], report["device"], report["device_count"]) == ("jax", "cpu", 2)
    passed = dict.fromkeys(checks.CHECKS, "pass")
    found = {check["name"]: check["outcome"] for check in report["checks"]}
    assert found == passed | {"golden values": "skipped", "attention": "skipped"}
    assert report["checks"][-1]["compared"] == "jax here with tensorflow on the CPU"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nowhere"], 1, "bert-features: there is no checkpoint 'nowhere'"),
        (["--device", "gpu"], 2, "bert-features: no GPU"),
    ],
)
def test_errors_are_one_line(minilm_dir, monkeypatch, arguments, status, message):
    monkeypatch.setattr(other_runtime, "unavailable_reason", lambda runtime: "not asked")
    result = run(*arguments)
    assert result.exit_code == status, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(message)
    assert result.stdout == ""


def test_errors_in_python(toy):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        verify("nowhere")
    with pytest.raises(ConfigError, match="unknown setting 'devise'"):
        verify_toy(toy, devise="cpu")
    with pytest.raises(ConfigError, match=r"precisions are \['int8'\]; allowed: float32, bfloat16"):
        verify(toy, precisions=["int8"])
