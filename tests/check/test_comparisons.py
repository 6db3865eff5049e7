"""The checks of the numbers find what is wrong; the golden values are what they say."""

import functools
import json

import numpy as np
import pytest

from bert_features.check import comparisons
from bert_features.check.comparisons import TEXTS
from bert_features.check.numbers import check_numbers
from bert_features.encoder.attention import by_head, plain
from bert_features.extraction import pipeline
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.runtime import tensorflow as runtime
from bert_features.runtime.base import Started
from tests.check.number_reports import check_toy, finding_named, leave_checks, statuses
from tests.conftest import NUM_DEVICES
from tests.markers import of_release
from tests.reference.golden_values import PATH, golden_values

pytestmark = pytest.mark.eight_devices
INVARIANCES = {"determinism", "batch", "padding", "packing"}


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


def tampered(weights):
    name = "encoder/layer_1/output/dense/bias"
    changed = weights[name].copy()
    changed[7] += 1e-3  # of one value: layer norm takes away what all have
    return weights | {name: changed}


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_weights_that_are_not_the_checkpoints_fail(minilm_dir, monkeypatch):
    read = pipeline.view_weights
    monkeypatch.setattr(pipeline, "view_weights", lambda *a, **k: tampered(read(*a, **k)))
    leave_checks(monkeypatch, "golden values", "reference", "batch")
    findings = list(check_numbers(precisions=("float32",)))
    assert statuses(findings)["broken"] == {"golden values", "reference"}
    assert finding_named(findings, "golden values").details["measured"] > 1e-4


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("last_layer", lambda v: v + np.float32(2e-5) * (np.arange(384) == 7), ""),
        of_release("token_ids", lambda v: v + 1, "the tokenizer's ids differ from the golden ones"),
        of_release("last_layer", lambda v: v[:, :10], "expected states"),
    ],
)
def test_other_golden_values_fail(minilm_dir, tmp_path, monkeypatch, name, changed, message):
    with np.load(PATH) as stored:
        values = dict(stored)
    np.savez(tmp_path / "golden.npz", **(values | {name: changed(values[name])}))
    monkeypatch.setattr(comparisons, "GOLDEN", str(tmp_path / "golden.npz"))
    leave_checks(monkeypatch, "golden values")
    _, finding = check_numbers(precisions=("float32",))
    assert finding.status == "broken"
    assert message in finding.found


@pytest.mark.usefixtures("one_device")
def test_the_golden_values_are_not_of_another_gelu(minilm_dir, monkeypatch):
    leave_checks(monkeypatch, "golden values")
    _, finding = check_numbers(precisions=("float32",), hidden_act="gelu_tanh")
    assert (finding.status, "measured" in finding.details) == ("note", False)


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_padding_that_leaks_fails(toy, monkeypatch):
    monkeypatch.setattr(plain, "MASK_BIAS", 0.0)
    # Else what is traced here is the attention of long rows in all tests that follow.
    by_length = functools.cache(by_head._traced_by_length.__wrapped__)
    monkeypatch.setattr(by_head, "_traced_by_length", by_length)
    failed = statuses(check_toy(toy))["broken"]
    assert failed == {"reference", "batch", "padding", "packing"}


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


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "kept_steps")
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
    assert statuses(check_toy(toy))["broken"] == failed


@pytest.mark.slow
@pytest.mark.parametrize("whole", [of_release(False), True])
def test_a_device_that_computes_something_else_fails(toy, monkeypatch, whole):
    """Also where every batch has all its rows, as on a TPU: a few texts are then on one device."""
    batching = {"num_devices": NUM_DEVICES, "whole_batches": whole}
    monkeypatch.setattr(runtime.TensorFlowRuntime, "batching", batching)
    # Short enough that a batch has several rows for each device.
    monkeypatch.setattr(comparisons, "TEXTS", ("is this jack", "no", "it is not"))
    compute = runtime._StepByShape.__call__

    def with_a_bad_device(step, batch):
        outputs = compute(step, batch)()
        for values in outputs.values():
            values[-len(values) // NUM_DEVICES :] += np.float32(1e-3)  # the share of the last
        return Started(lambda: outputs)

    monkeypatch.setattr(runtime._StepByShape, "__call__", with_a_bad_device)
    leave_checks(monkeypatch, "devices", "determinism")
    assert statuses(check_toy(toy))["broken"] == {"devices"}


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "kept_steps")
def test_values_that_are_no_numbers_fail(toy, monkeypatch):
    spoil(monkeypatch, lambda call, texts, i: np.nan)
    findings = check_toy(toy, precisions=("float32", "bfloat16"))
    assert statuses(findings)["broken"] == {"reference", *INVARIANCES}
    assert {finding.details.get("measured") for finding in findings} == {"nan", None}


@pytest.mark.usefixtures("one_device", "kept_steps")
@pytest.mark.parametrize(
    ("message", "cure"),
    [
        ("out of memory", ""),
        ("The TPU is already in use by process with pid 7.", "kill 7"),
    ],
)
def test_what_a_device_raises_fails_its_check_alone(toy, monkeypatch, message, cure):
    compute = FeatureExtractor.__call__

    def fail_on_long_rows(extractor, texts):
        if texts[-1].startswith("a a"):
            raise RuntimeError(f"{message}\nallocating 3 GB")
        return compute(extractor, texts)

    monkeypatch.setattr(FeatureExtractor, "__call__", fail_on_long_rows)
    findings = check_toy(toy)
    assert statuses(findings)["broken"] == {"padding"}
    finding = finding_named(findings, "padding")
    assert finding.found.startswith(f"RuntimeError: {message}")
    assert finding.found.endswith(cure or message)
    assert "measured" not in finding.details
