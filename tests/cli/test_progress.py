"""The progress display: a bar on a terminal, else log lines; amounts and speeds by hand."""

import logging

import pytest
from rich.console import Console

from bert_features.cli import progress
from bert_features.cli.progress import ProgressDisplay
from tests.clocks import stop_clock


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when a test says so, in seconds."""
    return stop_clock(monkeypatch, progress)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="bert_features")
    return lambda: caplog.messages


def test_log_lines_come_now_and_then(clock, lines):
    with ProgressDisplay() as display:
        for done in (10, 20, 30, 40):
            display.update(done, 4000, done * 100)
            clock(4)
    # At 0, 4 and 8 s nothing; at 12 s 30 x 100 tokens more than at the first update. At 30 examples
    # in 12 s the other 3,960 take 1,584 s.
    assert lines() == ["40 of 4,000 examples (1%, 26 min left), 250 tokens/s"]


def test_the_first_step_is_not_part_of_the_speed(clock, lines):
    with ProgressDisplay() as display:
        clock(60)  # compiling
        display.update(8, None, 1000)
        clock(10)
        display.update(16, None, 3000)
    assert lines() == ["8 examples, …", "16 examples, 200 tokens/s"]


def test_a_terminal_gets_a_bar(clock, lines, monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda **options: Console(width=80, **options))
    with ProgressDisplay() as display:
        display.update(10, 40, 1000)
        clock(2)
        display.update(20, 40, 2000)
        (task,) = display._bar.tasks
        assert task.fields == {"amount": "20/40 examples", "rate": "500 tokens/s"}
        assert task.percentage == 50
    assert lines() == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "20/40 examples" in captured.err


def test_an_interruption_ends_the_bar(monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    display = ProgressDisplay()
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    assert not display._bar.live.is_started
