"""The board: the metrics of replicas together, lines of their logs, the end."""

import logging

import pytest

from bert_features.extraction.counts import Counts
from bert_features.serving import board as module
from bert_features.serving.board import Board
from bert_features.serving.metrics import ServiceMetrics, to_text
from tests.clocks import stop_clock


def metrics_of(requests, queued):
    metrics = ServiceMetrics(queued=lambda: queued)
    for _ in range(requests):
        metrics.note_request("/v1/features", 200, 0.03)
    metrics.note_load(Counts(examples=requests, tokens=7), 0.5)
    return metrics


@pytest.fixture
def pass_time(monkeypatch):
    return stop_clock(monkeypatch, module)


def report(board, replica, metrics=None, running=0, lines=(), knows=False):
    families = [] if metrics is None else metrics.collect()
    return board.report(replica, families, running, lines, knows=knows)


def values(text):
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return dict(line.rsplit(" ", 1) for line in lines)


def test_metrics_of_replicas_are_summed(pass_time):
    board, own = Board(), metrics_of(2, queued=10)
    report(board, "own", metrics_of(9, queued=9))
    report(board, "other", metrics_of(3, queued=5))
    found = values(to_text([own.collect(), *board.metrics_of_others("own")]))
    assert found['bert_features_requests_total{path="/v1/features",status="200"}'] == "5.0"
    assert found["bert_features_queued_tokens"] == "15.0"
    assert found["bert_features_tokens_total"] == "14.0"
    bucket = 'bert_features_request_seconds_bucket{le="0.05",path="/v1/features"}'
    assert found[bucket] == "5.0"
    assert not [name for name in found if name.endswith("_created")]


def test_of_a_replica_that_died_the_counts_stay_and_the_state_goes(pass_time):
    board, own = Board(), metrics_of(2, queued=10)
    report(board, "dead", metrics_of(3, queued=5))
    pass_time(6)
    found = values(to_text([own.collect(), *board.metrics_of_others("own")]))
    assert found["bert_features_tokens_total"] == "14.0"
    assert found["bert_features_queued_tokens"] == "10.0"


def test_the_service_is_drained_when_all_replicas_know_and_answer_nothing(pass_time):
    board = Board()
    assert not report(board, "a", running=1)
    report(board, "dead", running=3)
    pass_time(6)
    board.drain()
    assert report(board, "a", running=1)
    assert not board.is_drained()
    report(board, "a", running=1, knows=True)
    assert not board.is_drained()
    report(board, "a", knows=True)
    assert board.is_drained()


def test_lines_of_logs_are_passed_on_once():
    board = Board()
    report(board, "a", lines=[(logging.WARNING, "first")])
    report(board, "b", lines=[(logging.ERROR, "second")])
    assert board.take_lines() == [(logging.WARNING, "first"), (logging.ERROR, "second")]
    assert board.take_lines() == []
