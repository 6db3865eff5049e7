"""A recipe: what each setting decides, for each use, and what comes back from JSON."""

import json
from dataclasses import replace

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import OUTPUT_SETTINGS
from bert_features.config.recipe import Recipe, describe_output
from bert_features.config.settings import DEVICES, FILES, INPUT, LONG_TEXTS, MODEL, OUTPUTS
from bert_features.errors import OutputError
from tests.other_values import ALONE, OTHERS
from tests.recipes import make_recipe
from tests.toy import TOY


def recipe_of(settings) -> Recipe:
    return make_recipe(config=ExtractConfig.of(settings))


def test_every_setting_is_in_the_table():
    assert OTHERS.keys() == ExtractConfig.known().keys()


@pytest.mark.parametrize("name", OTHERS)
def test_each_setting_decides_what_it_says(name):
    before, after = recipe_of(ALONE[name]), recipe_of(OTHERS[name])
    decides = ExtractConfig.marks(name).decides
    # What a run that is resumed compares; a folder compares its format by itself.
    is_compared = decides != "nothing" and name not in ("format", "shard")
    assert bool(before.changes(after)) is is_compared
    if is_compared:
        assert any(name in change for change in before.changes(after))
        assert (after.settings != before.settings) is True
    # And the settings come back.
    written = json.loads(json.dumps(after.to_json()))
    config = Recipe.from_json("x", written).to_config()
    left_out = {*ExtractConfig.names(decides="nothing")}
    wanted = ExtractConfig.of(OTHERS[name]).model_dump(exclude=left_out)
    assert config.model_dump(exclude=left_out) == wanted


def test_groups_decide_what_a_reader_expects():
    usual = {MODEL: "vectors", OUTPUTS: "vectors", LONG_TEXTS: "vectors", INPUT: "bytes"}
    usual |= {DEVICES: "digits", FILES: "bytes"}
    found = {
        name: ExtractConfig.marks(name).decides
        for name in ExtractConfig.known()
        if ExtractConfig.marks(name).decides != usual[ExtractConfig.marks(name).group]
    }
    assert found == {
        **dict.fromkeys(("dtype", "scale_from"), "digits"),
        **dict.fromkeys(("prompt", "segment"), "vectors"),
        "buffer_mb": "bytes",
        "dedupe": "digits",
        "cache": "nothing",
    }


def test_what_decides_digits_by_its_value_has_another_cache():
    before, after = recipe_of({}), recipe_of(OTHERS["dedupe"])
    assert before.digest() != after.digest()


@pytest.mark.parametrize(
    "name", sorted({*OUTPUT_SETTINGS} - {"scale_from"})
)  # it decides the scale
def test_each_setting_of_an_output_reaches_the_recipe_of_its_vectors(name):
    sides = []
    for settings in (ALONE[name], OTHERS[name]):
        layers = (-1, -2) if {"combine", "weights"} & {name, *settings} else (-1,)
        has_layers = settings.get("kind") != "sparse"
        given = {"layers": layers} | settings if has_layers else settings
        (output, *_) = ExtractConfig.of(given).plan_outputs(TOY)
        sides.append(make_recipe(outputs={"x": describe_output(output, TOY.num_hidden_layers)}))
    vectors, digits = sides[0].differences(sides[1], "x")
    assert bool(digits if ExtractConfig.marks(name).decides == "digits" else vectors)


def test_the_key_of_a_cache_changes_only_with_what_decides_something():
    """A change of this value makes each user compute everything again."""
    outputs = ExtractConfig(layers=-1).plan_outputs(TOY)
    plain = make_recipe(*outputs)
    for same in ({"level": "token", "dtype": "float32"}, {"buffer_mb": 9, "id_field": "x"}):
        assert plain.digest() == make_recipe(*outputs, config=ExtractConfig.of(same)).digest()
    assert plain.digest() == FROZEN
    model = plain.checkpoint["bert_config"] | {"hidden_dropout_prob": 0.5}
    copied = plain.checkpoint | {"name": "copy", "family": "google", "bert_config": model}
    assert replace(plain, checkpoint=copied).digest() == plain.digest()
    assert plain.digest(machine="x") != plain.digest()
    assert replace(plain, versions={"numpy": "2.1"}).digest() != plain.digest()


FROZEN = "ae2cdba8034c395612178fef78f1639bab28fb28a2d5fb11849cdc1b299c8641"


@pytest.mark.parametrize(
    "change",
    [
        {"settings": 3},
        {"checkpoint": {}},
        {"checkpoint": {**make_recipe().checkpoint, "bert_config": {}}},
        {"outputs": {"x": 3}},
        {"outputs": {"x": {}}},
        {"outputs": {"x": {"width": 2}}},
        {"versions": {"numpy": 2}},
        {"colour": "blue"},
        {"canaries": {"x": 3}},
    ],
    ids=str,
)
def test_what_is_no_recipe_is_one_clear_error(change):
    written = {**make_recipe(outputs={"x": {"width": 2, "dtype": "float32"}}).to_json(), **change}
    with pytest.raises(OutputError, match=r"a\.npz"):
        Recipe.from_json("a.npz", written)
