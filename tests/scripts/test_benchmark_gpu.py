"""benchmarks/gpu.py as far as it goes without GPU, peers and TensorFlow: at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    # What it sets for itself and its processes.
    for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "KERAS_BACKEND", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def benchmark(*arguments, path=()):
    """Runs the script; fakes on `path` make the import of some modules fail."""
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [*path, ROOT]))
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def without(tmp_path):
    """A folder of modules that fail when they are imported."""
    for name in ("tensorflow", "tensorflow_text", "requests", "typer", "pyarrow", "safetensors"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.release
def test_it_runs_without_tensorflow(without, tmp_path):
    files = tmp_path / "out.json", tmp_path / "out.md"
    options = ["--device", "cpu", "--quick", "--rounds", 2, "--steps", 2, "--peak-tflops", 2]
    result = benchmark(*options, "--json", files[0], "--markdown", files[1], path=[without])
    assert result.returncode == 0, result.stderr
    assert files[1].read_text() == result.stdout
    assert "| toy | 16 | bert_features |" in result.stdout
    report = json.loads(files[0].read_text())
    assert report["problems"] == []
    assert report["device"] == "cpu"
    rows = [row for row in report["results"] if row["program"] == "bert_features"]
    assert [row["length"] for row in rows] == [8, 16]
    for row in rows:
        assert len(row["rounds"]) == 2
        assert min(row["rounds"]) <= row["tokens_per_second"] <= max(row["rounds"])
        assert row["lowest_cosine"] == pytest.approx(1.0, abs=1e-6)
        # 2 blocks of 4 * 32 * 32 + 2 * 32 * 64 weights, and 2 * 32 products for each token seen.
        flops = 2 * 2 * (8192 + 2 * 32 * row["length"])
        assert row["tflops"] == pytest.approx(row["tokens_per_second"] * flops / 1e12)


class FakeWorker:
    """A program whose vectors and speeds are given."""

    def __init__(self, vectors, speed, fails_at=()):
        self._vectors = vectors
        self._speed = speed
        self._fails_at = fails_at
        self.facts = {"device": "NVIDIA H200", "versions": {}}

    def vectors(self, batch):
        return self._vectors

    def seconds(self, rows, length, steps):
        from benchmarking.gpu_workers import ProgramError

        if rows in self._fails_at:
            raise ProgramError("OutOfMemoryError: too large")
        return rows * length * steps / (self._speed * rows)  # larger batches are faster

    def close(self):
        pass


def measured(monkeypatch, **peers):
    """The report of programs that are not there."""
    import gpu

    monkeypatch.setattr(gpu, "MODULES", dict.fromkeys(peers, ()))
    ones = np.ones((4, 8), np.float32)
    workers = {gpu.OURS: FakeWorker(ones, 4e6)} | peers
    monkeypatch.setattr(gpu, "Worker", lambda name, config, device: workers[name])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--models", "BERT-Base", "--lengths=128"])
    report = gpu.measure(gpu._options())
    return report, gpu.markdown(report)


def test_the_targets_are_reported(scripts, monkeypatch):
    ones = np.ones((4, 8), np.float32)
    peers = {"slow": FakeWorker(ones, 1e6), "fast": FakeWorker(ones, 3.2e6, fails_at=(512,))}
    report, text = measured(monkeypatch, **peers)
    assert report["problems"] == []
    # One has no room for the largest batch, and is measured with the next.
    assert {row["program"]: row["rows"] for row in report["results"]} == {
        "bert_features": 512,
        "slow": 512,
        "fast": 256,
    }
    assert "BERT-Base, 128: speed-up over the faster peer 2.50, target 1.3: met" in text
    assert "BERT-Base, 128: share of the peak" in text


@pytest.mark.parametrize(
    ("vectors", "part"),
    [
        (np.arange(32, dtype=np.float32).reshape(4, 8), "lowest cosine"),
        (np.full((4, 8), np.nan, np.float32), "lowest cosine nan"),
    ],
)
def test_a_program_with_other_vectors_has_no_time(scripts, monkeypatch, vectors, part):
    report, text = measured(monkeypatch, wrong=FakeWorker(vectors, 9e9))
    assert [row["program"] for row in report["results"]] == ["bert_features"]
    (problem,) = report["problems"]
    assert problem.startswith("wrong, BERT-Base, 128 tokens: its vectors differ from ours")
    assert part in problem
    assert f"Problem: {problem}" in text
