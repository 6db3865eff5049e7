"""verify() and its command on devices that are right, and errors before any check."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from bert_features.cli import app
from bert_features.errors import CheckpointError, ConfigError
from bert_features.runtime import tensorflow as runtime
from bert_features.verify import checks, other_runtime
from bert_features.verify.comparison import TOLERANCES
from bert_features.verify.run import verify
from tests.conftest import NUM_DEVICES
from tests.verify.reports import check_named, outcomes, verify_toy

# Not importorskip: a process with JAX in it warns when it forks.
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


pytestmark = pytest.mark.eight_devices


def run(*arguments):
    return CliRunner().invoke(app, ["verify", *arguments])


@pytest.mark.slow
@needs_jax
@pytest.mark.usefixtures("one_device")
def test_the_embedded_model_passes_on_a_cpu(minilm_dir):
    result = run("--device", "cpu")
    assert result.exit_code == 0, result.output
    head, *rows, blank, summary = result.stdout.splitlines()
    assert head.split() == ["check", "precision", "result", "measured", "allowed", "compared"]
    assert blank == ""
    assert summary == "minilm on 1 CPU device(s), tensorflow runtime: 12 passed, 4 skipped"
    cells = [re.split(r"  +", row) for row in rows]
    names = list(checks.CHECKS)
    assert [row[:2] for row in cells] == [
        [name, precision] for precision in TOLERANCES for name in names
    ]
    for name, precision, outcome, measured, allowed, compared in cells:
        if name in ("devices", "attention"):
            reason = {
                "devices": "there is one device",
                "attention": "the Pallas kernel is for TPUs with the JAX runtime",
            }[name]
            assert (outcome, measured, compared) == ("skipped", "-", reason)
            continue
        assert outcome == "pass"
        assert allowed == {"float32": "<= 1e-05", "bfloat16": ">= 0.999"}[precision]
        assert TOLERANCES[precision].allows(float(measured))
    assert cells[-1][-1] == "tensorflow here with jax on the CPU"


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_every_device_is_checked(toy):
    report = verify_toy(toy)
    assert (report.device, report.device_count) == ("cpu", NUM_DEVICES)
    assert outcomes(report) == {
        "pass": {"reference", "devices", "determinism", "batch", "padding"},
        "fail": set(),
        "skipped": {"golden values", "attention", "runtimes"},
    }
    devices = check_named(report, "devices")
    assert devices.compared == f"a text on each of {NUM_DEVICES} devices with the first"
    assert 0 <= devices.measured <= devices.limit == 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "alone")
def test_the_rows_are_padded_to_every_bucket(toy, monkeypatch):
    """Of a checkpoint with room for the longest texts each declared length is computed."""
    shapes = set()
    prepare = runtime._StepOnCpu._prepare  # of batches in threads, and of a single one

    def noting(step, batch, form):
        shapes.add(tuple(batch["input_mask"].shape))
        return prepare(step, batch, form)

    monkeypatch.setattr(runtime._StepOnCpu, "_prepare", noting)
    assert verify("minilm", precisions=("float32",)).passed
    # Three texts and what fills the bucket, in one batch.
    assert {(4, 32), (4, 64), (4, 128), (4, 256), (4, 512)} <= shapes
    assert {(1, 32), (1, 8)} <= shapes  # texts alone


@pytest.mark.slow
@needs_jax
def test_the_jax_runtime_passes_on_several_devices(toy):
    command = [sys.executable, "-m", "bert_features", "verify", toy, "--uncased", "--json"]
    result = subprocess.run(
        [*command, "--runtime", "jax", "--device", "cpu", "--precision", "float32"],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
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
