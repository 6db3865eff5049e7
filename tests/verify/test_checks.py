"""`bert-features verify`: it passes what is right, and finds what is not."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from typer.testing import CliRunner

from bert_features.cli import app
from bert_features.encoder import kernels
from bert_features.errors import BertFeaturesError, CheckpointError, ConfigError
from bert_features.extraction import extractor as extraction
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.runtime import tensorflow as runtime
from bert_features.runtime.base import Started
from bert_features.verify import checks as module
from bert_features.verify import other_runtime as verify_runtime
from bert_features.verify.checks import TEXTS, TOLERANCES, verify
from bert_features.verify.other_runtime import OtherRuntime
from bert_features.verify.reference_encoder import ReferenceEncoder
from tests.conftest import NUM_DEVICES
from tests.reference.golden_values import PATH, golden_values
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_weights

# Not importorskip: a process with JAX in it warns when it forks.
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
INVARIANCES = {"determinism", "batch", "padding"}


@pytest.fixture
def alone(monkeypatch):
    """No other runtime: its process takes seconds."""
    monkeypatch.setattr(module, "why_not", lambda runtime: f"{runtime} is not asked")


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


def run(*arguments):
    return CliRunner().invoke(app, ["verify", *arguments])


# What it compares with.


def test_the_golden_values_are_the_reference_encoders(minilm_dir):
    with np.load(PATH) as stored:
        for name, values in golden_values(TEXTS).items():
            np.testing.assert_allclose(stored[name], values, rtol=0, atol=1e-6)
            assert stored[name].dtype == values.dtype


def test_the_golden_values_agree_with_those_of_another_project(data):
    cases = json.loads((data / "minilm_golden.json").read_text())["cases"]
    case = next(c for c in cases if c["hidden_act"] == "gelu_erf")
    with np.load(PATH) as stored:
        rows = np.split(stored["last_layer"].astype(np.float64), stored["row_splits"][1:-1])
    mean = rows[TEXTS.index(case["text"])].mean(axis=0)
    vector = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(vector[:5], case["first_values"], rtol=0, atol=case["atol"])


@pytest.mark.parametrize("hidden_act", ["gelu_erf", "gelu_tanh", "relu"])
def test_two_encoders_in_numpy_agree(hidden_act):
    config = TOY.model_copy(update={"hidden_act": hidden_act})
    weights = random_weights(config)
    ids = np.array([2, 5, 6, 7, 29, 3])
    row = ids[None]
    want = NumpyEncoder(config, weights)(row, np.ones_like(row), np.zeros_like(row))
    got = ReferenceEncoder(config, weights)(ids)
    np.testing.assert_allclose(got, np.concatenate(want), rtol=0, atol=1e-12)


# What passes.


@pytest.mark.slow
@needs_jax
@pytest.mark.usefixtures("one_device")
def test_the_embedded_model_passes_on_a_cpu(minilm_dir):
    result = run("--device", "cpu")
    assert result.exit_code == 0, result.output
    head, *rows, blank, summary = result.stdout.splitlines()
    assert head.split() == ["check", "precision", "result", "measured", "allowed", "compared"]
    assert blank == ""
    assert summary == "minilm on 1 CPU device(s), tensorflow runtime: 12 passed, 2 skipped"
    cells = [re.split(r"  +", row) for row in rows]
    names = list(module._CHECKS)
    assert [row[:2] for row in cells] == [
        [name, precision] for precision in TOLERANCES for name in names
    ]
    for name, precision, outcome, measured, allowed, compared in cells:
        if name == "devices":
            assert (outcome, measured, compared) == ("skipped", "-", "there is one device")
            continue
        assert outcome == "pass"
        assert allowed == {"float32": "<= 1e-05", "bfloat16": ">= 0.999"}[precision]
        assert TOLERANCES[precision].allows(float(measured))
    assert cells[-1][-1] == "tensorflow here with jax on the CPU"


@pytest.mark.usefixtures("alone")
def test_every_device_is_checked(toy):
    report = verify_toy(toy)
    assert (report.device, report.device_count) == ("cpu", NUM_DEVICES)
    assert outcomes(report) == {
        "pass": {"reference", "devices", *INVARIANCES},
        "fail": set(),
        "skipped": {"golden values", "runtimes"},
    }
    devices = check_named(report, "devices")
    assert devices.compared == f"a text on each of {NUM_DEVICES} devices with the first"
    assert 0 <= devices.measured <= devices.limit == 1e-5


@pytest.mark.usefixtures("one_device", "alone")
def test_the_rows_are_padded_to_every_bucket(toy, monkeypatch):
    """Of a checkpoint with room for the longest texts each declared length is computed."""
    shapes = set()
    compute = runtime._StepOnCpu.__call__

    def noting(step, batch):
        shapes.add(tuple(batch["input_mask"].shape))
        return compute(step, batch)

    monkeypatch.setattr(runtime._StepOnCpu, "__call__", noting)
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
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert (report["runtime"], report["device"], report["device_count"]) == ("jax", "cpu", 2)
    passed = dict.fromkeys(module._CHECKS, "pass")
    found = {check["name"]: check["outcome"] for check in report["checks"]}
    assert found == passed | {"golden values": "skipped"}
    assert report["checks"][-1]["compared"] == "jax here with tensorflow on the CPU"


# What fails.


def tampered(weights):
    name = "encoder/layer_1/output/dense/bias"
    changed = weights[name].copy()
    changed[7] += 1e-3  # of one value: layer norm takes away what all have
    return weights | {name: changed}


@pytest.mark.usefixtures("one_device", "alone")
def test_weights_that_are_not_the_checkpoints_fail(minilm_dir, monkeypatch):
    read = extraction.read_weights
    monkeypatch.setattr(extraction, "read_weights", lambda *a, **k: tampered(read(*a, **k)))
    result = run("--precision", "float32", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["passed"] is False
    failed = {c["name"]: c for c in report["checks"] if c["outcome"] == "fail"}
    assert failed.keys() == {"golden values", "reference"}
    assert failed["golden values"]["measured"] > 1e-4


@pytest.mark.usefixtures("one_device", "alone")
@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("last_layer", lambda v: v + np.float32(2e-5) * (np.arange(384) == 7), ""),
        ("token_ids", lambda v: v + 1, "the tokenizer gave other ids than the golden ones"),
        ("last_layer", lambda v: v[:, :10], "expected states"),
    ],
)
def test_other_golden_values_fail(minilm_dir, tmp_path, monkeypatch, name, changed, told):
    with np.load(PATH) as stored:
        values = dict(stored)
    np.savez(tmp_path / "golden.npz", **(values | {name: changed(values[name])}))
    monkeypatch.setattr(module, "GOLDEN", str(tmp_path / "golden.npz"))
    monkeypatch.setattr(module, "_CHECKS", {"golden values": module._golden})
    (check,) = verify(precisions=("float32",)).checks
    assert check.outcome == "fail"
    assert told in check.compared


@pytest.mark.usefixtures("one_device", "alone")
def test_the_golden_values_are_not_of_another_gelu(minilm_dir, monkeypatch):
    monkeypatch.setattr(module, "_CHECKS", {"golden values": module._golden})
    (check,) = verify(precisions=("float32",), hidden_act="gelu_tanh").checks
    assert (check.outcome, check.measured) == ("skipped", None)


@pytest.mark.usefixtures("one_device", "alone")
def test_padding_that_leaks_fails(toy, monkeypatch):
    monkeypatch.setattr(kernels, "MASK_BIAS", 0.0)
    failed = outcomes(verify_toy(toy))["fail"]
    assert failed == {"reference", "batch", "padding"}


def spoil(monkeypatch, change):
    """Adds to the vectors of each call what `change(call, texts, text)` says."""
    compute = FeatureExtractor.__call__
    calls = 0

    def spoiled(extractor, texts):
        nonlocal calls
        calls += 1
        records = compute(extractor, texts)
        for i, record in enumerate(records):
            for values in record.features.values():
                values += np.float32(change(calls, list(texts), i))
        return records

    monkeypatch.setattr(FeatureExtractor, "__call__", spoiled)


@pytest.mark.usefixtures("one_device", "alone")
@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (lambda call, texts, i: 1e-3 * call, {"reference", *INVARIANCES}),
        (lambda call, texts, i: 1e-3 * (len(texts) == 1), {"batch", "padding"}),
        (lambda call, texts, i: 1e-3 * texts[-1].startswith("a a"), {"padding"}),
    ],
)
def test_vectors_that_depend_on_something_else_fail(toy, monkeypatch, change, failed):
    spoil(monkeypatch, change)
    assert outcomes(verify_toy(toy))["fail"] == failed


@pytest.mark.usefixtures("alone")
def test_a_device_that_computes_something_else_fails(toy, monkeypatch):
    compute = runtime._StepByShape.__call__

    def with_a_bad_device(step, batch):
        outputs = compute(step, batch)()
        for values in outputs.values():
            values[-len(values) // NUM_DEVICES :] += np.float32(1e-3)  # the share of the last
        return Started(lambda: outputs)

    monkeypatch.setattr(runtime._StepByShape, "__call__", with_a_bad_device)
    assert "devices" in outcomes(verify_toy(toy))["fail"]


@pytest.mark.usefixtures("one_device", "alone")
def test_values_that_are_no_numbers_fail(toy, monkeypatch):
    spoil(monkeypatch, lambda call, texts, i: np.nan)
    report = verify_toy(toy, precisions=("float32", "bfloat16"))
    assert outcomes(report)["fail"] == {"reference", *INVARIANCES}
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert {check["measured"] for check in told["checks"]} == {"nan", None}


@pytest.mark.usefixtures("one_device", "alone")
def test_what_a_device_raises_fails_its_check_alone(toy, monkeypatch):
    compute = FeatureExtractor.__call__

    def fail_on_long_rows(extractor, texts):
        if texts[-1].startswith("a a"):
            raise RuntimeError("out of memory\nallocating 3 GB")
        return compute(extractor, texts)

    monkeypatch.setattr(FeatureExtractor, "__call__", fail_on_long_rows)
    report = verify_toy(toy)
    assert outcomes(report)["fail"] == {"padding"}
    check = check_named(report, "padding")
    assert check.compared == "RuntimeError: out of memory"
    assert check.measured is None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_allowed(precision):
    tolerance = TOLERANCES[precision]
    limit = {"float32": 1e-5, "bfloat16": 0.999}[precision]
    worse = {"float32": 1.1e-5, "bfloat16": 0.9989}[precision]
    assert tolerance.allows(limit)
    assert not tolerance.allows(worse)
    assert not tolerance.allows(float("nan"))


# The other runtime.


class Other:
    """Stands in for the process of the other runtime."""

    def __init__(self, states):
        self.states = states

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "pass"), (1e-3, "fail")])
def test_the_other_runtime_must_agree(toy, monkeypatch, difference, outcome):
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=("embeddings", 0, 1, 2), max_seq_length=24, do_lower_case=True
    )
    states = [np.stack(list(r.features.values())) + difference for r in extractor(TEXTS)]
    monkeypatch.setattr(module, "why_not", lambda runtime: "")
    monkeypatch.setattr(module, "OtherRuntime", lambda *arguments: Other(lambda: states))
    check = check_named(verify_toy(toy), "runtimes")
    assert check.outcome == outcome
    assert check.compared == "tensorflow here with jax on the CPU"


@pytest.mark.usefixtures("one_device")
def test_without_jax_the_runtimes_are_not_compared(toy, monkeypatch):
    monkeypatch.setattr(verify_runtime.importlib.util, "find_spec", lambda name: None)
    check = check_named(verify_toy(toy), "runtimes")
    assert check.outcome == "skipped"
    assert check.compared == "jax is not installed: pip install 'bert_features[jax]'"


def test_a_runtime_that_fails_says_why():
    with (
        OtherRuntime("tensorflow", TEXTS, {"checkpoint": "nowhere"}) as other,
        pytest.raises(BertFeaturesError, match="failed with status 1: there is no checkpoint 'no"),
    ):
        other.states()


def test_a_runtime_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(verify_runtime, "_TIMEOUT_SECONDS", 0.01)
    with OtherRuntime("tensorflow", TEXTS, {"checkpoint": "minilm"}) as other:
        with pytest.raises(BertFeaturesError, match="tensorflow runtime gave no result in"):
            other.states()
        assert other._process.poll() is None
    assert other._process.poll() is not None


# Errors.


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nowhere"], 1, "bert-features: there is no checkpoint 'nowhere'"),
        (["--device", "gpu"], 2, "bert-features: no GPU"),
    ],
)
def test_errors_are_one_line(minilm_dir, monkeypatch, arguments, status, message):
    monkeypatch.setattr(module, "why_not", lambda runtime: "not asked")
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
