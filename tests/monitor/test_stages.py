"""Stage times: by a clock that moves when a test says so, so that every time is known."""

import pytest

from bert_features.monitor import stages as module
from bert_features.monitor.run import RunMonitor
from bert_features.monitor.stages import STAGES, StageClock, StageTimes
from tests.clocks import stop_clock


@pytest.fixture
def pass_time(monkeypatch):
    return stop_clock(monkeypatch, module)


def times(*, read=0, tokenize=0, batch=0, **led):
    busy = dict.fromkeys(STAGES, 0.0) | {"read": read, "tokenize": tokenize, "batch": batch}
    activities = dict.fromkeys(("input", "device", "assemble", "write", "files"), 0.0)
    return StageTimes(busy, {**activities, **led})


def test_the_leading_threads_time_is_divided_without_a_rest(pass_time):
    clock = StageClock()
    with clock.running():
        pass_time(1)  # opens the output
        for activity, seconds in (("input", 2), ("device", 3), ("assemble", 4), ("write", 5)):
            clock.lead(activity)
            pass_time(seconds)
        clock.lead("files")
        pass_time(6)
    pass_time(100)
    clock.lead("device")  # no run is going on
    found = clock.times()
    assert found.led == {"input": 2, "device": 3, "assemble": 4, "write": 5, "files": 7}
    assert found.elapsed == sum(found.waited.values()) == 21
    assert found.waited["write"] == 12
    assert found.busy["assemble"] == 4


def test_making_items_counts_and_using_them_does_not(pass_time):
    def make():
        for i in range(3):
            pass_time(2)
            yield i

    clock = StageClock()
    for _ in clock.timed("read", make()):
        pass_time(10)
    assert clock.times().busy["read"] == 6


def test_batches_computed_at_the_same_time_count_once():
    clock = StageClock()
    for began, ended in ((0, 4), (1, 3), (2, 6), (10, 11)):
        clock.computed((began, ended))
    assert clock.times().busy["device"] == 7


def test_where_the_runtime_does_not_know_the_wait_for_the_device_counts(pass_time):
    clock = StageClock()
    with clock.running():
        clock.lead("device")
        clock.computed(None)
        pass_time(3)
    assert clock.times().busy["device"] == 3


@pytest.mark.parametrize(
    ("found", "limiting"),
    [
        (times(read=5, tokenize=2, input=6, device=3), "read"),
        (times(read=2, tokenize=5, input=6, device=3), "tokenize"),
        (times(read=2, tokenize=2, batch=5, input=6, device=3), "batch"),
        (times(read=9, input=3, device=4), "device"),  # it read while the device computed
        (times(assemble=2, write=1), "assemble"),
        (times(device=3, write=2, files=2), "write"),
        (times(), None),
    ],
)
def test_the_stage_that_the_run_waited_for_longest_limits_it(found, limiting):
    assert found.limiting == limiting


def test_a_monitor_adds_the_latest_times_of_each_process():
    monitor = RunMonitor()
    monitor.note(1, times(read=50, device=50))
    monitor.note(1, times(read=1, device=2))
    monitor.note(2, times(read=3, device=4))
    assert monitor.processes == 2
    assert monitor.times().busy["read"] == 4
    assert monitor.times().elapsed == 6
