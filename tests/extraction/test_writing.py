"""write_behind: batches are written in order, behind what makes them, in bounded memory."""

import sys
import threading
import time

import numpy as np
import pytest

from bert_features.extraction.writing import write_behind
from bert_features.formats.records import FeatureBatch

BYTES = 80  # of a batch


def make_batches(count):
    for i in range(count):
        yield FeatureBatch(np.array([i]), {"x": np.full((1, BYTES // 8), i, np.float64)})


def number(batch):
    return int(batch.unique_ids[0])


def test_batches_are_written_in_order_by_another_thread():
    written, threads = [], set()

    def write(batch):
        written.append(number(batch))
        threads.add(threading.get_ident())

    write_behind(make_batches(50), write, max_bytes=3 * BYTES)
    assert written == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("held", [1, 3])
def test_what_waits_is_bounded(held):
    """No more batches are taken while as many bytes wait as may, without the writer's quarter."""
    taken = 0
    go_on = threading.Event()

    def batches():
        nonlocal taken
        for batch in make_batches(10):
            taken += 1
            yield batch

    def write(batch):
        go_on.wait(10)

    def look():
        deadline = time.monotonic() + 5
        while taken < held + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # would another be taken?
        seen.append(taken)
        go_on.set()

    seen = []
    thread = threading.Thread(target=look)
    thread.start()
    write_behind(batches(), write, max_bytes=held * BYTES * 4 // 3 + 1)
    thread.join()
    # One more is in the caller's hands, and waits for room.
    assert (seen, taken) == ([held + 1], 10)


def test_a_batch_larger_than_the_bound_is_written():
    written = []
    write_behind(make_batches(3), lambda batch: written.append(number(batch)), max_bytes=1)
    assert written == [0, 1, 2]


def test_after_a_failure_the_thread_ends():
    written = []

    def write(batch):
        if number(batch) == 2:
            raise OSError("full")
        written.append(number(batch))

    with pytest.raises(OSError, match="full"):
        write_behind(make_batches(1000), write, max_bytes=2 * BYTES)
    count = len(written)
    time.sleep(0.05)
    assert written[:2] == [0, 1]
    assert len(written) == count  # the thread has ended
    assert count < 10


def test_a_failure_of_the_last_batch_is_raised():
    def write(batch):
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_behind(make_batches(1), write, max_bytes=BYTES)


def test_an_error_of_the_batches_ends_the_thread():
    """What was being written is written to its end; what waited is not begun."""
    written = []
    began = threading.Event()

    def write(batch):
        began.set()
        time.sleep(0.1)
        written.append(number(batch))

    def batches():
        yield from make_batches(5)
        began.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_behind(batches(), write, max_bytes=100 * BYTES)
    assert written == [0]
    time.sleep(0.2)
    assert written == [0]


@pytest.fixture
def interval():
    """The switch interval before a test, which no other test sets."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_the_switch_interval_is_short_and_restored(interval):
    during = []
    write_behind(
        make_batches(1), lambda batch: during.append(sys.getswitchinterval()), max_bytes=BYTES
    )
    assert during == [pytest.approx(0.0005)]
    assert sys.getswitchinterval() == interval
    with pytest.raises(ZeroDivisionError):
        write_behind(make_batches(1), lambda batch: 1 / 0, max_bytes=BYTES)
    assert sys.getswitchinterval() == interval
