"""RaySettings: what --ray, --ray-actors and --ray-resources take."""

import pytest

from bert_features.config.ray_settings import RaySettings
from bert_features.errors import ConfigError


def test_the_defaults_are_one_actor_and_no_bound():
    assert RaySettings.parse(" auto ") == RaySettings("auto", 1, None, None)


@pytest.mark.parametrize(
    ("actors", "bounds"), [("4", (4, 4)), (4, (4, 4)), ("2:8", (2, 8)), ("1:1", (1, 1))]
)
def test_bounds_are_one_number_or_two(actors, bounds):
    settings = RaySettings.parse("local", actors)
    assert (settings.min_actors, settings.max_actors) == bounds


@pytest.mark.parametrize("actors", ["0", "8:2", "a", "1:", ":3", "-1", "1:2:3", ""])
def test_other_bounds_are_refused(actors):
    with pytest.raises(ConfigError, match="ray_actors"):
        RaySettings.parse("local", actors)


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


@pytest.mark.parametrize(
    "resources", ["CPU", "CPU=", "CPU=0", "CPU=1.5", "CPU=1.2.3", "CPU=-1", "", {}, {"CPU": "2"}]
)
def test_other_resources_are_refused(resources):
    with pytest.raises(ConfigError, match="ray_resources"):
        RaySettings.parse("local", resources=resources)
