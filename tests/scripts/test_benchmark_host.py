"""The model of benchmarks/host.py, on made-up measurements."""

from importlib import import_module
from pathlib import Path

import pytest

from bert_features import read_features

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_more_cores_help_up_to_the_slowest_thread(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    host = import_module("host")
    # Elapsed and CPU seconds of 2 M tokens up to each stage. For a million: reading 0.1,
    # tokenizing 0.2, batching 0.1, assembling 0.4, converting 0.3, writing 0.9; together 2.
    cpu = dict(zip(host.STAGES, (0.2, 0.6, 0.8, 1.6, 2.2, 4.0), strict=True))
    one = {stage: (seconds, seconds) for stage, seconds in cpu.items()}
    host.print_model(2_000_000, one, {"write": (2.5, 4.1)})
    lines = capsys.readouterr().out.splitlines()
    assert "| assemble | 0.40 |" in lines
    assert "| 1 | 0.50 | 0.50 |" in lines
    assert "| 2 | 1.00 | 0.80 |" in lines
    assert "| 4 | 1.11 |  |" in lines  # the thread that writes is busy all the time
    assert "| v5e-1 | 24 | 1.11 | 0.56 | 1 | 1.1 |" in lines
    assert "| v5e-8 | 224 | 1.11 | 4.5 | 5 | 9.0 |" in lines


def test_a_job_runs_without_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It fits the extractor as it is now."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    host = import_module("host")
    extractor = host.make_extractor("token", packing=True)
    texts = tmp_path / "texts.txt"
    host.write_texts(texts, ["house", "tree"], 400, 20)
    for stage in host.STAGES:
        host.run_stage(stage, extractor, texts, tmp_path / stage, "arrow")
    assert len(read_features(tmp_path / "write", format="arrow")) == 20
    assert (tmp_path / "convert").stat().st_size == 0
