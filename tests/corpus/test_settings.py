"""Settings that go into a manifest and come back mean the same."""

import json
from pathlib import Path

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.plan import record_settings, restore_settings
from bert_features.errors import OutputError
from bert_features.formats.manifest import Manifest
from tests.formats.feature_folders import make_manifest

AUTO = {"level": "sequence", "pooling": "auto"}


def manifest_of(run) -> Manifest:
    manifest = make_manifest(Path("out"), "npz", [1])
    manifest.run.clear()
    manifest.run.update(json.loads(json.dumps(run)))
    return manifest


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"layers": (-1, -2), "combine": "weighted", "weights": (0.1, 1.0), "do_lower_case": True},
        {"layers": ("embeddings", 0), "buckets": (8, 16), "batch_size": 3, "id_field": ""},
        AUTO,
        {**AUTO, "normalize": False},
        {**AUTO, "layers": ExtractConfig().layers},
        {**AUTO, "normalize": True, "special_tokens": True, "dim": 3},
        {"outputs": [{"name": "a", "layers": [-1]}, {"name": "b", **AUTO}], "dtype": "float16"},
        {"outputs": [{"name": "a", **AUTO, "normalize": False}]},
        {"outputs": [{"name": "a", **AUTO, "normalize": False}, {"name": "b", **AUTO}]},
    ],
    ids=str,
)
def test_the_restored_settings_mean_the_same(settings):
    config = ExtractConfig.of(settings)
    restored = restore_settings(manifest_of(record_settings(config)))
    assert restored.model_dump(exclude={"format"}) == config.model_dump(exclude={"format"})
    assert restored.format == "npz"
    assert record_settings(restored) == record_settings(config)
    for before, now in zip(config.output_configs(), restored.output_configs(), strict=True):
        assert now == before
        if before.pooling == "auto":
            assert now.model_fields_set == before.model_fields_set


def test_what_a_default_says_is_recorded_only_where_it_matters():
    plain = record_settings(ExtractConfig())
    assert record_settings(ExtractConfig(normalize=False)) == plain
    left_open = record_settings(ExtractConfig.of(AUTO))
    assert record_settings(ExtractConfig.of({**AUTO, "normalize": False})) != left_open


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"settings": {}, "set_to_default": []},
        {"settings": 3, "set_to_default": []},
        {**record_settings(ExtractConfig()), "set_to_default": []},
        {"settings": {"outputs": [], "colour": "blue"}, "set_to_default": [[]]},
    ],
    ids=str,
)
def test_a_manifest_without_known_settings(run):
    with pytest.raises(OutputError, match="cannot take the settings of the run from the manifest"):
        restore_settings(manifest_of(run))
