"""The report of `verify`: on this CPU, and on chips that are made up."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bert_features.checkpoints.sources.published import find_published
from bert_features.cli import app
from bert_features.cli.verify import _surroundings
from bert_features.extraction import preparation
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.machine.hardware import TPU_GENERATIONS
from bert_features.runtime.base import CompiledStep, Devices, Runtime
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.tpu.chips import peak_flops
from bert_features.verify import run as run_module
from bert_features.verify import speed
from bert_features.verify.report import Timing
from bert_features.verify.run import verify
from bert_features.verify.speed import flops_per_token
from tests import families
from tests.toy import TOY
from tests.verify.reports import leave_checks, verify_toy

pytestmark = pytest.mark.usefixtures("alone", "_few_texts")


@pytest.fixture
def _few_texts(monkeypatch):
    monkeypatch.setattr(speed, "_SECONDS", 0.02)
    monkeypatch.setattr(speed, "_MIN_HOST_TOKENS", 20_000)


def test_the_operations_of_a_token():
    """docs/tpu.md: the TPU compiler counts 176.0 million, with those that are no products."""
    assert flops_per_token(find_published("bert-base").config, 128) == pytest.approx(
        176e6, rel=0.01
    )
    attention = 2 * 2 * 3 * 24 * 8  # scores and their sums, 3 blocks, S 24, H 8
    assert flops_per_token(TOY, 24) == 3 * 2 * (4 * 8 * 8 + 2 * 8 * 16) + attention
    # ModernBERT: three products of 16 x 24, and a window of 2 * 4 + 1 tokens in two of four layers.
    modern = families.checkpoint("modernbert").config
    seen = 20 + 9 + 9 + 20
    products = 4 * (4 * 16 * 16 + 3 * 16 * 24)
    assert flops_per_token(modern, 20) == 2 * (products + 2 * seen * 16)


def test_the_peak_of_devices():
    assert peak_flops("TPU v5 lite", 8, "bfloat16") == 8 * 197e12
    assert peak_flops("TPU v5 lite", 8, "float32") == pytest.approx(8 * 197e12 / 6)
    assert peak_flops("TPU7x", 8, "bfloat16") == 4 * 2307e12  # two devices in each chip
    assert peak_flops("NVIDIA L4", 1, "bfloat16") is None
    unknown = [g for g in TPU_GENERATIONS.values() if peak_flops(f"TPU {g}", 1, "float32") is None]
    assert unknown == ["v2 or v3"]


# Eight chips as JAX lists them.
CHIP = SimpleNamespace(
    device_kind="TPU v5 lite", memory_stats=lambda: {"bytes_limit": 16_900_000_000}
)


class MadeUpTpu(Runtime):
    """Chips that this CPU computes for, in batches as for chips."""

    name = "jax"
    devices = Devices("tpu", 8, devices=(CHIP,) * 8)

    def __init__(self, change):
        self.cpu = TensorFlowRuntime("cpu")
        self.change = change
        self.batches = []

    def compile(self, step, weights, **choices):
        computing, self_ = self.cpu.compile(step, weights), self

        class Step(CompiledStep):
            def __call__(self, batch):
                rows = len(batch["input_mask"])
                self_.batches.append(rows)
                self_.devices.check_rows(rows)
                self_.change(rows)
                return computing(batch)

        return Step()

    def bfloat16_slowdown(self):
        return 1.0


@pytest.fixture
def tpu(monkeypatch):
    """Runs `verify` on a made-up TPU; `change` is called with the rows of each batch."""

    def run(toy, change=lambda rows: None, **settings):
        made = MadeUpTpu(change)
        monkeypatch.setattr(preparation, "make_runtime", lambda *settings: made)
        monkeypatch.setattr(preparation, "DEVICE_BATCH_TOKENS", 192)
        timing = Timing(24, 64, {"xla": 0.001, "pallas": 0.002})
        monkeypatch.setattr(run_module.attention, "time_on", lambda *given, **named: [timing])
        return verify_toy(toy, speed=True, **settings), made

    return run


@pytest.mark.slow
@pytest.mark.release
def test_a_tpu_is_reported_with_its_utilisation(toy, tpu, monkeypatch):
    leave_checks(monkeypatch, "devices")
    report, _ = tpu(toy, precisions=("float32", "bfloat16"))
    assert [check.outcome for check in report.checks] == ["pass", "pass"]
    found = report.surroundings
    assert found.precision == "bfloat16"
    assert found.chips == ({"kind": "TPU v5 lite", "memory_bytes": 16_900_000_000},) * 8
    device, host, extract = found.speeds
    assert (device.part, device.length, device.tokens_per_second) == ("device", 24, 24 * 64 / 0.001)
    assert device.utilisation == 24 * 64 / 0.001 * flops_per_token(TOY, 24) / (8 * 197e12)
    assert (host.part, host.utilisation) == ("host", None)
    share = extract.utilisation / extract.tokens_per_second
    assert share == pytest.approx(device.utilisation / device.tokens_per_second)
    lines = _surroundings(report)
    assert lines[1] == "devices: 8 x TPU v5 lite, 16.9 GB each"
    assert lines[3].splitlines()[1].split() == ["device", "24", "1,536,000", "0.0%"]


@pytest.mark.slow
def test_the_host_alone_computes_one_batch_of_a_shape(toy, tpu, monkeypatch):
    leave_checks(monkeypatch)
    _, made = tpu(toy)
    of_host, *rest = made.batches
    # Then the same texts, computed: one batch beforehand, and at least two that count.
    assert len(rest) >= 3
    assert set(rest) == {of_host}
    assert of_host % 8 == 0


def test_the_host_alone_has_enough_texts(toy, tpu, monkeypatch):
    leave_checks(monkeypatch)
    rows = []
    write = speed._write_texts
    monkeypatch.setattr(
        speed, "_write_texts", lambda *given: rows.append(given[2]) or write(*given)
    )
    monkeypatch.setattr(speed, "_SECONDS", 0.0)
    tpu(toy)
    few, of_host, of_extract = rows
    assert of_host * 24 > 20_000 * 0.9
    assert of_extract == 2 * few


def test_an_error_of_the_chips_is_part_of_the_report(toy, tpu, monkeypatch):
    leave_checks(monkeypatch)

    def fail(rows):
        raise RuntimeError("RESOURCE_EXHAUSTED: no HBM\nmore")

    report, _ = tpu(toy, fail)
    device, extract = report.surroundings.speeds
    assert device.tokens_per_second > 0
    assert (extract.part, extract.tokens_per_second) == ("extract", None)
    assert extract.problem == "RuntimeError: RESOURCE_EXHAUSTED: no HBM"
    assert extract.problem in _surroundings(report)[3]


def test_an_error_before_anything_is_measured_is_part_of_the_report(toy, tpu, monkeypatch):
    def fail(*given, **settings):
        raise RuntimeError("open(/dev/vfio/0): Device or resource busy: Device or resource busy")

    leave_checks(monkeypatch)
    monkeypatch.setattr(speed, "FeatureExtractor", fail)
    report, _ = tpu(toy)
    (extract,) = report.surroundings.speeds
    assert extract.problem.endswith("sudo lsof -w /dev/vfio/* /dev/accel*")


def test_the_device_alone_computes_packed_rows_where_a_run_does(toy):
    settings = {"checkpoint": str(toy), "layers": -1, "do_lower_case": True}
    extractor = FeatureExtractor.from_checkpoint(**settings)
    found = speed.measure(extractor, "float32", settings | {"packing": True}).speeds
    assert [(one.part, one.length, one.problem) for one in found] == [
        ("device", 128, ""),
        ("host", 24, ""),
        ("extract", 24, ""),
    ]


def run(*arguments):
    return CliRunner().invoke(app, ["verify", *arguments, "--device", "cpu"])


@pytest.mark.slow
def test_the_report_on_a_cpu(toy, tmp_path, monkeypatch):
    leave_checks(monkeypatch, "batch")
    path = tmp_path / "report.json"
    result = run(toy, "--uncased", "--precision", "float32", "--report", str(path))
    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    assert [check["name"] for check in report["checks"]] == ["batch"]
    assert report["versions"]["python"]
    assert [chip["memory_bytes"] for chip in report["chips"]] == [None]
    parts = [(one["part"], one["length"]) for one in report["speeds"]]
    assert parts == [("device", 24), ("host", 24), ("extract", 24)]
    assert all(one["tokens_per_second"] > 0 for one in report["speeds"])
    assert {one["utilisation"] for one in report["speeds"]} == {None}
    head, *rows, blank, summary = result.stdout.split("speed in float32, the mean of each row:\n")[
        1
    ].splitlines()
    assert head.split() == ["part", "length", "tokens/s", "of", "peak"]
    assert [row.split()[0] for row in rows] == ["device", "host", "extract"]
    assert (blank, summary.endswith("1 passed")) == ("", True)


def test_a_report_that_cannot_be_written_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "verify", None)
    result = run("--report", str(tmp_path / "nowhere" / "report.json"))
    assert result.exit_code == 1
    assert "there is no folder" in result.stderr


@pytest.mark.slow
def test_without_it_nothing_is_measured(toy, monkeypatch):
    leave_checks(monkeypatch, "batch")
    monkeypatch.setattr(run_module, "measure", None)
    assert "speeds" not in verify(toy, precisions=("float32",), device="cpu").as_dict()
