"""The parts of scripts/benchmark.py that need no peers: options, errors, texts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "benchmark.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_help_names_the_sections():
    result = benchmark("--help")
    assert result.returncode == 0, result.stderr
    for section in ("jobs", "encoder", "targets", "latency", "start", "memory"):
        assert f"`{section}`" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--texts", "nowhere.txt"], 1, "error: nowhere.txt does not exist"),
        (
            ["--sections", "speed"],
            2,
            "'speed'; allowed: jobs, encoder, targets, latency, start, memory",
        ),
        (["--calls", "0"], 2, "0; allowed: an integer of at least 1"),
        (["--rounds", "0"], 2, "0; allowed: an integer of at least 1"),
        (["--programs", "word2vec"], 2, "'word2vec'; allowed: bert_features fp32"),
    ],
)
def test_errors(arguments: list[str], status: int, message: str):
    result = benchmark(*arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_texts_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from benchmarking.corpora import CORPORA

    lines = [f"line {i} of the texts" for i in range(50)]
    assert set(CORPORA) == {"ud_ewt", "long", "lognormal"}
    for make in CORPORA.values():
        first, second = make(lines), make(lines)
        assert first.texts == second.texts
        assert first.sample(3).texts == second.sample(3).texts
        assert len(first.sample(3).texts) == 3
    long = [len(text.split()) for text in CORPORA["long"](lines).texts]
    assert min(long) >= 250
    assert max(long) > 512  # some do not fit a row


@pytest.mark.slow
def test_the_first_feature_in_parts():
    """Each part is found under its name, and they make up the whole."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarking.first_feature"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent)])},
    )
    assert result.returncode == 0, result.stderr
    for parts in json.loads(result.stdout).values():
        total = parts.pop("total")
        assert "tracing the step" in parts
        assert "the first step" in parts
        assert len(parts) == 10
        assert sum(parts.values()) == pytest.approx(total)
        assert all(seconds > 0 for name, seconds in parts.items() if name != "the interpreter")


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With workers that answer at once, in order: the second takes twice as long."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from benchmarking import latency
    from benchmarking.processes import BenchmarkError
    from benchmarking.report import _latency

    turns = []

    class FakeWorker:
        def __init__(self, program, log):
            self.program = program

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def __call__(self, do, **arguments):
            slow = self.program != "bert_features fp32"
            if do == "load_calls":
                ways = ["encode"] if slow else ["encode", latency.STEP_ALONE]
                vectors = {way: np.full((1, 3), difference * slow) for way in ways}
                np.savez(arguments["save"], **vectors)
                return {"ways": ways}
            turns.append((self.program, arguments["way"], arguments["count"]))
            return {"seconds": [0.002 * (1 + slow)] * arguments["count"]}

    monkeypatch.setattr(latency, "Worker", FakeWorker)
    monkeypatch.setattr(latency, "run_module", lambda *arguments: "")
    names = ["bert_features fp32", "sentence-transformers fp32", "openvino fp32"]
    arguments = {"calls": 65, "models": tmp_path, "log": tmp_path}
    difference = 5e-5
    table = latency.measure_latency(names, **arguments)
    ways = [(names[0], "encode"), (names[0], latency.STEP_ALONE), (names[1], "encode")]
    assert turns == [(*way, count) for count in (*6 * [10], 5) for way in ways]
    assert [row["p50"] for row in table["rows"]] == [0.002, 0.002, 0.004]
    assert "| sentence-transformers fp32 | encode | 4.00 | 4.00 | 2.00 | 5.0e-05 |" in _latency(
        table
    )
    difference = 2e-4
    with pytest.raises(BenchmarkError, match=r"sentence-transformers fp32, encode: .* 0\.0002"):
        latency.measure_latency(names, **arguments)
    with pytest.raises(BenchmarkError, match="none of openvino"):
        latency.measure_latency(["openvino fp32"], **arguments)
