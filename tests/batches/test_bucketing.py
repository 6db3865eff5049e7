"""The buckets of a run, with values checked by hand."""

import numpy as np
import pytest

from bert_features.batches.bucketing import BatchShapes, plan_batches, resolve_buckets
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


@pytest.mark.parametrize("whole", [True, False])
def test_uniform_batches_hold_rows_of_one_bucket(whole):
    lengths = np.array([3, 8, 5, 4, 12, 4, 3])
    shapes = BatchShapes((4, 8, 16), (3, 2, 1), whole=whole, uniform=True)
    plan = plan_batches(lengths, shapes)
    batches = [
        (lengths[plan.order[start : start + count]].tolist(), length)
        for start, count, length in zip(plan.starts, plan.counts, plan.lengths, strict=True)
    ]
    assert batches == [([12], 16), ([8, 5], 8), ([4, 4, 3], 4), ([3], 4)]
    assert plan.rows.tolist() == [1, 2, 3, 3 if whole else 1]


def test_other_batches_take_rows_of_several_buckets():
    plan = plan_batches(np.array([8, 3, 3]), BatchShapes((4, 8), (4, 2)))
    assert plan.counts.tolist() == [2, 1]
    assert plan.lengths.tolist() == [8, 4]
