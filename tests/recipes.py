"""Recipes of vectors that nobody computed."""

from collections.abc import Mapping
from typing import Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.config.recipe import RECIPE, Recipe, describe_output


def make_recipe(
    *outputs: OutputSpec, sha256: str = "ab" * 32, config: ExtractConfig | None = None, **facts: Any
) -> Recipe:
    """The recipe of some outputs of a checkpoint of three layers; `facts` are attributes of it."""
    usual: dict[str, Any] = {
        "checkpoint": {
            "name": "toy",
            "sha256": sha256,
            "bert_config": {"num_hidden_layers": 3, "vocab_size": 9},
        },
        "vocabulary": {"sha256": "cd" * 32},
        "versions": {"numpy": "2.0"},
        "outputs": {output.name: describe_output(output, 3) for output in outputs},
        "arithmetic": {"precision": "float32"},
    }
    return Recipe.of_run(config or ExtractConfig(), **(usual | facts))


def metadata_of(*outputs: OutputSpec, **facts: Any) -> Mapping[str, Any]:
    """The metadata of a file with such a recipe."""
    return {RECIPE: make_recipe(*outputs, **facts).to_json()}
