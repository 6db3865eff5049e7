"""The buckets of a run, with values checked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from bert_features.batches.bucketing import (
    BatchShapes,
    choose_buckets,
    device_shapes,
    plan_batches,
    resolve_buckets,
)
from bert_features.config.extract_config import ExtractConfig


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


@pytest.mark.parametrize(
    ("given", "length", "options", "expected"),
    [
        ({}, 6, {"any_shape": True, "packed": False}, (3, 4, 5, 6)),
        ({}, 40, {"any_shape": False, "packed": False}, (16, 32, 40)),
        ({"buckets": (8,)}, 20, {"any_shape": True, "packed": False}, (8, 20)),
        ({"buckets": (8,)}, 20, {"any_shape": False, "packed": False}, (8, 20)),
        ({}, 40, {"any_shape": True, "packed": True}, (128,)),
    ],
)
def test_buckets_are_those_given_or_fit_the_device(given, length, options, expected):
    config = ExtractConfig.of({"checkpoint": "absent", **given})
    assert choose_buckets(config, length, **options) == expected


@pytest.mark.parametrize(
    ("given", "limits", "rows"),
    [
        ({}, {"most_tokens": 64}, 8),  # 4 of 16 tokens for each of two devices
        ({}, {"most_tokens": 64, "rows": 6}, 6),
        ({}, {}, 2048),  # 16,384 tokens for each
        ({"batch_tokens": 160}, {"most_tokens": 64}, 10),
        ({"batch_size": 12}, {"most_tokens": 64}, 12),
    ],
)
def test_the_rows_of_two_devices(given, limits, rows):
    config = ExtractConfig.of({"checkpoint": "absent", **given})
    shapes = device_shapes(config, 16, packed=False, devices=2, **limits)
    assert (shapes.buckets, shapes.rows, shapes.multiple) == ((16,), (rows,), 2)


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


def test_a_batch_ends_where_its_padding_would_cost_more_than_another_one():
    """20 for itself: of 40, 6 and 6 the first alone, 40/60 > 46/100; of 6, 6, 5 all, 17/38."""
    lengths = np.array([6, 40, 5, 6])
    shapes = BatchShapes((8, 40), (9, 9), batch_cost=20)
    plan = plan_batches(lengths, shapes)
    assert plan.order.tolist() == [1, 0, 3, 2]
    assert (plan.counts.tolist(), plan.lengths.tolist()) == ([1, 3], [40, 6])
    assert plan.computed_tokens == 40 + 3 * 6


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_batches_that_end_early_hold_every_row_once_and_pad_less(seed, multiple):
    lengths = np.random.default_rng(seed).lognormal(3, 0.8, 200).astype(int).clip(3, 128)
    full = BatchShapes.by_tokens((*range(4, 128, 4), 128), 512, multiple)
    plans = [plan_batches(lengths, replace(full, batch_cost=cost)) for cost in (0, 30)]
    costs = [plan.computed_tokens + 30 * len(plan.rows) for plan in plans]
    assert costs[1] < costs[0]
    early = plans[1]
    assert sorted(early.order) == list(range(200))
    assert early.starts.tolist() == [0, *np.cumsum(early.counts)[:-1]]
    assert early.counts.sum() == 200
    assert early.lengths.tolist() == lengths[early.order[early.starts]].tolist()
    assert not (early.rows % multiple).any()
    assert (early.rows * early.lengths <= 512).all() or multiple > 1
    assert (early.rows - early.counts < multiple).all()
