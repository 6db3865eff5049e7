"""benchmarks/gpu.py as far as it goes without GPU, peers and TensorFlow: at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


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
    assert [row["length"] for row in rows] == [8, 16, "sentences", "log-normal"]
    for row in rows:
        assert len(row["rounds"]) == 2
        assert min(row["rounds"]) <= row["tokens_per_second"] <= max(row["rounds"])
        assert row["lowest_cosine"] == pytest.approx(1.0, abs=1e-6)
        if isinstance(row["length"], str):  # texts of many lengths, packed
            continue
        # 2 blocks of 4 * 32 * 32 + 2 * 32 * 64 weights, and 2 * 32 products for each token seen.
        flops = 2 * 2 * (8192 + 2 * 32 * row["length"])
        assert row["tflops"] == pytest.approx(row["tokens_per_second"] * flops / 1e12)


def test_padded_batches_hold_each_text_once(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    with mock.patch.dict(os.environ):  # the script sets Keras' backend and others
        import gpu
    from benchmarking.gpu_programs import padded_batches, random_texts

    lengths = gpu.mixed_lengths("log-normal", 32, 3000)
    assert lengths[:-1].sum() < 3000 <= lengths.sum()
    assert set(lengths) > {3, 32}
    texts = random_texts(gpu.QUICK_MODELS["toy"], lengths)
    parts = np.split(texts["values"], np.cumsum(lengths)[:-1])
    seen = []
    for rows, batch in padded_batches(texts, 64):
        assert batch["input_mask"].size <= 64
        for text, ids, mask in zip(rows, batch["input_word_ids"], batch["input_mask"], strict=True):
            np.testing.assert_array_equal(ids[mask == 1], parts[text])
            seen.append(int(text))
    assert sorted(seen) == list(range(len(lengths)))
