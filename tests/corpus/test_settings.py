"""Settings that go into a manifest and come back mean the same."""

import json
from pathlib import Path

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.plan import describe_settings, record_settings, restore_settings
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
    restored = restore_settings(manifest_of(record_settings(config)))
    assert restored.model_dump(exclude={"format"}) == config.model_dump(exclude={"format"})
    assert restored.format == "npz"
    assert record_settings(restored) == record_settings(config)
    assert restored.outputs == config.outputs


def test_a_default_that_was_written_down_is_no_difference_but_where_it_matters():
    plain = describe_settings(ExtractConfig())
    assert describe_settings(ExtractConfig(level="token", dtype="float32")) == plain
    assert describe_settings(ExtractConfig(level="word")) != plain
    left_open = describe_settings(ExtractConfig.of(AUTO))
    assert describe_settings(ExtractConfig.of({**AUTO, "normalize": False})) != left_open


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"settings": 3},
        {"settings": {"outputs": [], "colour": "blue"}},
    ],
    ids=str,
)
def test_a_manifest_without_known_settings(run):
    with pytest.raises(OutputError, match="cannot take the settings of the run from the manifest"):
        restore_settings(manifest_of(run))
