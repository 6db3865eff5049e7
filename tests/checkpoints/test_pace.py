"""The pace of downloads, by a clock of our own."""

import io

import pytest

from bert_features.checkpoints.pace import Pace, PacedReader, PaceLimits, TooLongError, TooSlowError

LIMITS = PaceLimits(least_speed=10.0, window=60.0, longest=1000.0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_speed_counts_over_whole_windows(clock):
    pace = Pace(LIMITS, clock)
    clock.now = 59.0
    pace.add(1)  # the window is not over
    clock.now = 60.0
    pace.add(599)  # 600 bytes in 60 seconds are 10 in one
    clock.now = 120.0
    with pytest.raises(TooSlowError, match="sent 10 bytes per second for 60 seconds; at least 10 "):
        pace.add(598)


def test_the_time_between_attempts_is_no_slowness(clock):
    pace = Pace(LIMITS, clock)
    clock.now = 100.0
    pace.begin_attempt()
    clock.now = 159.0
    pace.add(1)


def test_the_longest_time_is_of_all_attempts(clock):
    pace = Pace(LIMITS, clock)
    clock.now = 999.0
    pace.begin_attempt()
    pace.add(10_000)
    clock.now = 1001.0
    with pytest.raises(TooLongError, match=r"took more than 0\.277778 hours"):
        pace.add(10_000)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_reader_gives_what_is_asked_for(clock, size):
    class Drops(io.BytesIO):
        def read1(self, size):
            return self.read(min(size, 2))

    reader = PacedReader(Drops(b"0123456789"), Pace(LIMITS, clock))
    blocks = list(iter(lambda: reader.read(size), b""))
    assert b"".join(blocks) == b"0123456789"
    assert all(len(block) == size for block in blocks[:-1])
