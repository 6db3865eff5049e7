"""The parts of scripts/benchmark.py that need no peers: options, errors, texts."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "benchmark.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_help_names_the_sections():
    result = benchmark("--help")
    assert result.returncode == 0, result.stderr
    for section in ("jobs", "encoder", "targets", "memory"):
        assert f"`{section}`" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--texts", "nowhere.txt"], 1, "error: nowhere.txt does not exist"),
        (["--sections", "speed"], 2, "'speed'; allowed: jobs, encoder, targets, memory"),
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
