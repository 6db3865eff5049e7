"""Rotary positions: exact at any position, and the same in every layout."""

import numpy as np
import pytest

from bert_features.encoder.packed_texts import within_reach
from bert_features.encoder.rotary import Rotation
from tests.reference.numpy_encoder import rotated


@pytest.mark.parametrize("theta", [10_000.0, 160_000.0])
def test_angles_are_exact_at_the_last_position_too(theta):
    """A product in float32 is off by 4e-4 there."""
    rotation = Rotation.by(np.arange(8192, dtype=np.int32), theta, 64)
    angles = np.arange(8192)[:, None] * theta ** (-np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(rotation.cosine, np.cos(angles), rtol=0, atol=1e-6)
    np.testing.assert_allclose(rotation.sine, np.sin(angles), rtol=0, atol=1e-6)


def test_every_layout_is_turned_alike():
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32)  # [B, A, S, D]
    want = rotated(x.astype(np.float64), 100.0)
    places = np.arange(5, dtype=np.int32)
    for positions in (places, np.stack([places, places])):
        rotation = Rotation.by(positions, 100.0, 4)
        heads_first = rotation.turned(x.swapaxes(0, 1), heads_first=True)
        got = {
            "rows": rotation.turned(x, heads_first=False),
            "heads": np.swapaxes(heads_first, 0, 1),
            "lanes": np.swapaxes(rotation.turned_in_lanes(x.swapaxes(2, 3)), 2, 3),
        }
        for name, value in got.items():
            np.testing.assert_allclose(value, want, rtol=0, atol=1e-6, err_msg=name)
    beside = np.concatenate([*x], axis=1)[None]  # [1, A, 2 * S, D]
    rotation = Rotation.by(places, 100.0, 4)
    got = np.swapaxes(rotation.turned_in_lanes(np.swapaxes(beside, 2, 3)), 2, 3)
    np.testing.assert_allclose(got, np.concatenate([*want], axis=1)[None], rtol=0, atol=1e-6)


def test_a_window_of_one_token():
    mask = np.array([[1, 1, 1, 0]], np.int32)
    want = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]]
    np.testing.assert_array_equal(within_reach(mask, 1), [want])
    assert within_reach(mask, 3) is mask  # no token is further away
