"""Settings that go into a manifest and come back mean the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.recipe import Recipe
from bert_features.corpus.plan import restore_settings
from bert_features.errors import OutputError
from bert_features.formats.manifest import Manifest
from tests.formats.feature_folders import make_manifest
from tests.recipes import make_recipe

AUTO = {"level": "sequence", "pooling": "auto"}


def manifest_of(recipe) -> Manifest:
    written = json.loads(json.dumps(recipe.to_json()))
    return replace(make_manifest(Path("out"), "npz", [1]), recipe=Recipe.from_json("out", written))


def changes(before, now):
    recipes = (make_recipe(config=ExtractConfig.of(settings)) for settings in (before, now))
    return next(recipes).changes(next(recipes))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"layers": (-1, -2), "combine": "weighted", "weights": (0.1, 1.0), "do_lower_case": True},
        {"layers": ("embeddings", 0), "buckets": (8, 16), "batch_size": 3, "id_field": ""},
        AUTO,
        {**AUTO, "normalize": False},
        {**AUTO, "layers": (-1, -2)},
        {**AUTO, "normalize": True, "special_tokens": True, "dim": 3},
        {"outputs": [{"name": "a", "layers": [-1]}, {"name": "b", **AUTO}], "dtype": "float16"},
        {"outputs": [{"name": "a", **AUTO, "normalize": False}]},
        {"outputs": [{"name": "a", **AUTO, "normalize": False}, {"name": "b", **AUTO}]},
    ],
    ids=str,
)
def test_the_restored_settings_mean_the_same(settings):
    config = ExtractConfig.of(settings)
    restored = restore_settings(manifest_of(make_recipe(config=config)))
    assert restored.model_dump(exclude={"format"}) == config.model_dump(exclude={"format"})
    assert restored.format == "npz"
    assert restored.outputs == config.outputs
    assert changes(settings, restored.model_dump(exclude_unset=True)) == []


def test_a_default_that_was_written_down_is_no_change_but_where_it_matters():
    assert changes({}, {"level": "token", "dtype": "float32"}) == []
    assert changes({}, {"level": "word"}) == ["level 'token', now 'word'"]
    assert changes(AUTO, {**AUTO, "normalize": False}) == ["normalize None, now False"]


def test_a_manifest_with_a_setting_that_is_unknown():
    recipe = replace(make_recipe(), settings={"colour": "blue"})
    with pytest.raises(OutputError, match="cannot take the settings of the run from the manifest"):
        restore_settings(manifest_of(recipe))
