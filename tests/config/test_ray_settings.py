"""RaySettings: what --ray, --ray-actors and --ray-resources take."""

import pytest

from bert_features.config.ray_settings import RaySettings


def test_the_defaults_are_one_actor_and_no_bound():
    assert RaySettings.parse(" auto ") == RaySettings("auto", 1, None, None)


@pytest.mark.parametrize(
    ("actors", "bounds"), [("4", (4, 4)), (4, (4, 4)), ("2:8", (2, 8)), ("1:1", (1, 1))]
)
def test_bounds_are_one_number_or_two(actors, bounds):
    settings = RaySettings.parse("local", actors)
    assert (settings.min_actors, settings.max_actors) == bounds


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        ("CPU=2", {"CPU": 2}),
        ("TPU=4, CPU=8", {"TPU": 4, "CPU": 8}),
        ("GPU=0.5", {"GPU": 0.5}),
        ({"TPU": 4}, {"TPU": 4}),
    ],
)
def test_resources_are_names_with_amounts(resources, amounts):
    assert RaySettings.parse("local", resources=resources).resources == amounts
