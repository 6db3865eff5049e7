"""The progress display: a bar on a terminal, else log lines; amounts and speeds by hand."""

import logging

import pytest
from rich.console import Console

from bert_features.cli import progress
from bert_features.cli.progress import EXAMPLES, MEGABYTES, ProgressDisplay


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when a test says so, in seconds."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def pass_time(seconds):
        now[0] += seconds

    return pass_time


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="bert_features")
    return lambda: caplog.messages


def test_log_lines_come_now_and_then(clock, lines):
    with ProgressDisplay(EXAMPLES) as display:
        for done in (10, 20, 30, 40):
            display.update(done, 4000, done * 100)
            clock(4)
    # At 0, 4 and 8 s nothing; at 12 s 30 x 100 tokens more than at the first update.
    assert lines() == ["40 of 4,000 examples, 250 tokens/s"]


def test_the_first_step_is_not_part_of_the_speed(clock, lines):
    with ProgressDisplay(EXAMPLES) as display:
        clock(60)  # compiling
        display.update(8, None, 1000)
        clock(10)
        display.update(16, None, 3000)
    assert lines() == ["8 examples, …", "16 examples, 200 tokens/s"]


def test_a_download_ends_with_a_line(clock, lines):
    with ProgressDisplay(MEGABYTES) as display:
        display.update(500_000, 2_500_000)
        clock(6)
        display.update(2_300_000, 2_500_000)
        display.update(2_500_000, 2_500_000)
    assert lines() == ["2.3 of 2.5 MB, 0.3 MB/s", "2.5 of 2.5 MB"]


def test_a_finished_extraction_leaves_the_end_to_its_summary(clock, lines):
    with ProgressDisplay(EXAMPLES) as display:
        display.update(3, 3, 21)
    assert lines() == []


def test_a_terminal_gets_a_bar(clock, lines, monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda **options: Console(width=80, **options))
    with ProgressDisplay(EXAMPLES) as display:
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
    display = ProgressDisplay(EXAMPLES)
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    assert not display._bar.live.is_started
