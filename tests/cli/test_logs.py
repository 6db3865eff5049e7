"""--log-json: each line of standard error is one JSON object, errors included."""

import json
import logging
from datetime import UTC, datetime

import pytest

from bert_features.cli import progress
from bert_features.cli.logs import _Formatter, error_line, log_form
from bert_features.cli.progress import ProgressDisplay
from tests.cli.command_line import SMALL, program, run
from tests.clocks import stop_clock


def read_lines(text):
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line)[:3] == ["time", "level", "message"]
        assert datetime.fromisoformat(line["time"]).tzinfo == UTC
        assert line["time"].endswith("Z")
    return lines


def test_an_error_is_an_object_and_keeps_its_exit_status(out):
    result = run("extract", "absent.txt", "-o", out / "o.npz", "--log-json")
    (line,) = read_lines(result.stderr)
    assert result.exit_code == 1
    assert line["level"] == "error"
    assert line["message"].startswith("cannot read absent.txt: No such file")
    result = run("extract", "absent.txt", "-o", out / "o.npz", "--log-json", "--debug")
    (line,) = read_lines(result.stderr)
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    plain = run("extract", "absent.txt", "-o", out / "o.npz")
    assert plain.stderr.startswith("bert-features: cannot read absent.txt: ")


def test_bad_usage_is_an_object_too():
    process = program("extract", "in.txt", "--no-such", "--log-json")
    _, errors = process.communicate(timeout=120)
    (line,) = read_lines(errors)
    assert process.returncode == 2
    assert line["level"] == "error"
    assert "No such option: --no-such" in line["message"]


def test_features_on_standard_output_leave_the_summary_to_the_log(toy, text, caplog):
    caplog.set_level(logging.INFO, logger="bert_features")
    options = ["--checkpoint", toy, "--layers=-1", *SMALL, "--log-json"]
    result = run("extract", text, "-o", "-", *options)
    assert [json.loads(line)["linex_index"] for line in result.stdout.splitlines()] == [0, 1, 2]
    assert caplog.records[-1].message == "finished"
    assert caplog.records[-1].fields["tokens"] == 21


@pytest.fixture
def clock(monkeypatch):
    return stop_clock(monkeypatch, progress)


def test_progress_has_its_numbers_as_fields(clock, caplog):
    caplog.set_level(logging.INFO, logger="bert_features")
    with log_form(as_json=True), ProgressDisplay() as display:
        display.update(10, 90, 200)
        clock(20)
        display.update(30, 90, 500)
        (line,) = read_lines(_Formatter().format(caplog.records[-1]))
    fields = {"examples": 30, "total": 90, "tokens": 500, "tokens_per_second": 15.0}
    assert {name: line[name] for name in fields} == fields
    assert line["seconds_left"] == 60


def test_control_characters_do_not_reach_the_terminal():
    assert error_line("é \x1b[2J\nx") == "bert-features: é \\x1b[2J\\nx"
