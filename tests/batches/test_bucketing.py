"""The buckets of a run, with values checked by hand."""

import pytest

from bert_features.batches.bucketing import resolve_buckets
from bert_features.errors import ConfigError


@pytest.mark.parametrize(
    ("buckets", "max_seq_length", "expected"),
    [
        ((16, 32, 64), 64, (16, 32, 64)),
        ((16, 32, 64), 50, (16, 32, 50)),
        ((16, 32), 100, (16, 32, 100)),
        ((), 8, (8,)),
    ],
)
def test_buckets_end_at_the_longest_row(buckets, max_seq_length, expected):
    assert resolve_buckets(buckets, max_seq_length) == expected


@pytest.mark.parametrize(("buckets", "length"), [((2, 8), 8), ((8,), 2), ((8, 8), 8), ((9, 8), 9)])
def test_impossible_buckets_are_refused(buckets, length):
    with pytest.raises(ConfigError, match="buckets"):
        resolve_buckets(buckets, length)
