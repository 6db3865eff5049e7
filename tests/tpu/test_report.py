"""The bounds of speed, against arithmetic by hand."""

import pytest

from bert_features.tpu.chips import parse_topology
from bert_features.tpu.report import Bounds, ShapeReport


def report(**changes):
    figures = {
        "length": 128,
        "rows": 4,
        "compile_seconds": 1.0,
        "weight_bytes": 10,
        "temporary_bytes": 10,
        "output_bytes": 10,
        "largest_rows": None,
        "flops_per_token": 2e8,
        "bytes_per_token": 5e5,
        "hbm_bytes_per_token": 1e5,
        "kernels": 3,
        "left_bytes_per_token": 3200.0,
        "collectives": (),
        "host_callbacks": (),
    }
    return ShapeReport(**figures | changes)


@pytest.mark.parametrize(
    ("bytes_per_token", "precision", "roofline"),
    [
        (5e5, "bfloat16", 197e12 / 2e8),  # 400 flop/byte, above the chip's 241
        (1e6, "bfloat16", 819e9 / 1e6),  # 200, below it
        (1e6, "float32", 197e12 / 6 / 2e8),  # a sixth of the peak
    ],
)
def test_roofline(bytes_per_token, precision, roofline):
    bounds = Bounds.of(
        report(bytes_per_token=bytes_per_token), parse_topology("v5e:2x2"), precision
    )
    assert bounds.roofline == pytest.approx(roofline)
    peak = 197e12 if precision == "bfloat16" else 197e12 / 6
    assert bounds.roofline * 2e8 == pytest.approx(min(peak, bounds.intensity * 819e9))
    assert bounds.hbm_roofline == pytest.approx(min(peak / 2e8, 819e9 / 1e5))
    assert bounds.pcie == pytest.approx(16e9 / 3200)


def test_without_a_count_of_hbm_there_is_no_bound_by_it():
    bounds = Bounds.of(report(hbm_bytes_per_token=None), parse_topology("v5e:2x2"), "bfloat16")
    assert bounds.hbm_roofline is None


def test_the_chip_is_bound_by_arithmetic_below_740_kb():
    """What BERT-base has on a v5e: 178 Mflop/token * 819 / 197,000."""
    topology = parse_topology("v5e:2x2")
    for kilobytes, by_arithmetic in [(735, True), (745, False)]:
        bounds = Bounds.of(
            report(flops_per_token=178e6, bytes_per_token=kilobytes * 1e3), topology, "bfloat16"
        )
        assert (bounds.arithmetic < bounds.memory) is by_arithmetic
