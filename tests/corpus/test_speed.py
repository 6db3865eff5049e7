"""measure_speed(): the tokens of the first examples by the seconds of their second computation."""

import itertools
import json
import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus import speed

SETTINGS = {"layers": (-1,), "do_lower_case": True, "max_seq_length": 16}


@pytest.fixture
def computed(monkeypatch):
    """The number of examples of each call of `compute`."""
    numbers = []

    class Extractor(speed.Pipeline):
        def compute(self, examples, counts, **options):
            numbers.append(len(examples))
            return super().compute(examples, counts, **options)

    monkeypatch.setattr(speed, "Pipeline", Extractor)
    return numbers


def set_clock(monkeypatch, seconds):
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def lines(tmp_path, number):
    path = tmp_path / "texts.txt"
    path.write_text("a b\n" * number)
    return path


@pytest.mark.usefixtures("kept_steps")
@pytest.mark.parametrize(
    ("number", "seconds", "sizes"),
    [(2000, 3.0, [64]), (2000, 0.5, [64, 256, 1024]), (100, 0.5, [64, 100]), (5, 0.5, [5])],
)
def test_it_computes_more_until_two_seconds_are_measured(
    toy, tmp_path, monkeypatch, computed, number, seconds, sizes
):
    set_clock(monkeypatch, seconds)
    config = ExtractConfig.of({"checkpoint": str(toy), **SETTINGS})
    found = speed.measure_speed(config, lines(tmp_path, number))
    assert found == sizes[-1] * 4 / seconds  # [CLS] a b [SEP]
    assert computed == [size for size in sizes for _ in range(2)]


def test_plan_says_how_long_a_run_takes(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "measure_speed", lambda settings, inputs: 10.0)
    path = lines(tmp_path, 400)
    options = ["--checkpoint", str(toy), "--uncased", "--layers=-1", "--max-seq-length", "16"]
    command = ["plan", str(path), "--measure", *options]
    shown = CliRunner().invoke(app, command).stdout
    assert re.search(r"^time +about 3 min on this machine, at 10 tokens/s, without", shown, re.M)
    values = CliRunner().invoke(app, [*command, "--json"]).stdout
    assert json.loads(values)["tokens_per_second"] == 10.0
