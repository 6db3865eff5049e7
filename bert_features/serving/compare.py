"""`compare`: whether the vectors of two files, services, exports or checkpoints may be compared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bert_features.config.config_files import read_config
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.recipe import RECIPE, Recipe
from bert_features.config.settings import read_toml
from bert_features.errors import CheckpointError, ConfigError, OutputError, first_line
from bert_features.export.checks import RECIPE_FILE
from bert_features.extraction.canaries import canaries_of_export
from bert_features.files import is_there, local_path
from bert_features.formats import SUFFIXES, folder_of, read_features
from bert_features.formats.canaries import Comparison, compare_recipes
from bert_features.formats.headers import feature_of
from bert_features.formats.manifest import has_manifest
from bert_features.formats.reader import FeatureFile
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.serving.client import Client


def compare(
    a: Any, b: Any, *, feature: str | None = None, token: str | None = None
) -> list[Comparison]:
    """Compares what the vectors of two sides depend on, and the canaries of both.

    Args:
      a: a features file or folder, the address of a service (http://…), an export, a TOML file of
        settings, or a checkpoint: its path or address. In Python also what has a `recipe`: an
        opened features file, an extractor, a client; or an `ExtractConfig`. A checkpoint takes the
        settings of the other side if that is a features file or has settings, else the default
        ones.
      b: the other side.
      feature: compare this feature alone; `NAME=NAME` where it has two names.
      token: the token of a service, if one of the two is one.

    Returns:
      A comparison for each feature that both have.

    Raises:
      OutputError: a file cannot be read or does not record how it was made, or there is no feature
        that both have.
      CheckpointError: a checkpoint is not usable.
      ConfigError: settings are wrong.
      ServiceError: a service does not answer.
    """
    first, second = _opened(a, token), _opened(b, token)
    return compare_recipes(_recipe(first, second), _recipe(second, first), feature)


def _opened(side: Any, token: str | None) -> Any:
    """What has the recipe of a side; the name of a checkpoint, which has none by itself."""
    if not isinstance(side, str | Path):
        return side
    name = str(side)
    if name.startswith(("http://", "https://")):
        with Client(name, token=token) as client:
            return client.recipe
    folder, suffix = folder_of(name), Path(name).suffix.lower()
    if (folder is not None and has_manifest(folder)) or suffix in SUFFIXES:
        return read_features(name)
    if suffix == ".toml":
        path, text = read_config(name)
        return ExtractConfig.of(read_toml(text, str(path)))
    file = local_path(name) / RECIPE_FILE
    return _recipe_of_export(file) if is_there(file) else name


def _recipe(side: Any, other: Any) -> Recipe:
    if isinstance(side, Recipe):
        return side
    if isinstance(side, str):
        named = {"checkpoint": side, "config_file": None, "vocab_file": None}
        if isinstance(other, FeatureFile):
            side = other.recipe.for_queries(named)
        else:
            is_config = isinstance(other, ExtractConfig)
            settings = {n: getattr(other, n) for n in other.model_fields_set} if is_config else {}
            side = ExtractConfig.of({**settings, **named})
    if isinstance(side, ExtractConfig):
        import_tensorflow(side.runtime, side.device)
        from bert_features.extraction.pipeline import Pipeline

        try:
            return Pipeline(side).recipe
        except CheckpointError as error:
            raise CheckpointError(
                f"{side.checkpoint} is neither a features file or folder, nor a service, an export "
                f"or a file of settings, and no checkpoint that can be used: {error}"
            ) from error
    recipe = getattr(side, "recipe", None)
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            f"{type(side).__name__} has no recipe; allowed: the path or address of a features "
            "file, a service, an export or a checkpoint, or an object of bert_features"
        )
    return recipe


def _recipe_of_export(path: Path) -> Recipe:
    """The recipe beside an export; the canaries are computed by the export of texts itself."""
    try:
        values = json.loads(path.read_bytes())
        features = tuple(map(feature_of, values["features"]))
        recipe = Recipe.from_json(str(path.parent), values[RECIPE])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(f"cannot read {path} ({first_line(error)}); export again") from error
    import_tensorflow()
    from bert_features.export.loading import load_export

    export = load_export(path.parent)
    if export.signature != "text":
        return recipe
    return replace(recipe, canaries=canaries_of_export(export, features))
