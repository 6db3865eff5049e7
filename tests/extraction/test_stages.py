"""Stages of real runs: the stage that is slowed down is the one that is named."""

import time

import pytest

from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.writing import write_behind
from bert_features.monitor.stages import STAGES, StageClock
from bert_features.readers.input_example import InputExample

EXAMPLES = [InputExample(i, "is this jacksonville ?" if i % 3 else "no") for i in range(600)]


@pytest.fixture(scope="module")
def extractor(toy):
    made = FeatureExtractor.from_checkpoint(
        toy, do_lower_case=True, max_seq_length=8, batch_size=64, layers=(-1,)
    )
    measure(made, EXAMPLES)  # traces the step
    return made


def measure(extractor, examples, write=lambda batch: None, **options):
    clock = StageClock()
    with clock.running():
        batches = extractor.batches(lambda: iter(examples), stages=clock, **options)
        write_behind(batches, write, max_bytes=1 << 20, stages=clock)
    return clock.times()


def slowly(examples):
    for example in examples:
        time.sleep(0.01)
        yield example


def test_slow_reading_is_named(extractor):
    found = measure(extractor, slowly(EXAMPLES[:120]))
    assert found.limiting == "read"
    assert found.busy["read"] >= 1.2
    assert found.busy["tokenize"] < found.busy["read"]


def test_a_slow_device_is_named(extractor, monkeypatch):
    step = type(extractor._step)
    run = step.__call__

    def slow(self, batch):
        started = run(self, batch)
        time.sleep(0.1)
        return started

    monkeypatch.setattr(step, "__call__", slow)
    assert measure(extractor, EXAMPLES).limiting == "device"


@pytest.mark.parametrize("threads", [True, False])
def test_every_stage_is_measured_and_the_sum_is_the_time_of_the_run(extractor, threads):
    started = time.monotonic()
    found = measure(extractor, EXAMPLES, lambda batch: time.sleep(0.01), threads=threads)
    seconds = time.monotonic() - started
    assert all(found.busy[stage] > 0 for stage in STAGES)
    assert all(busy <= seconds for busy in found.busy.values())
    assert sum(found.waited.values()) == pytest.approx(found.elapsed)
    assert 0.9 * seconds < found.elapsed <= seconds
