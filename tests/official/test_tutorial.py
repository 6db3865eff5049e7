"""get_features: which models stay loaded between its calls. Its values: tests/extraction."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_features import get_features
from bert_features.errors import ConfigError
from bert_features.official import tutorial

SETTINGS = {"max_seq_length": 20, "batch_size": 8, "do_lower_case": True}


@pytest.fixture
def made(monkeypatch):
    """The settings of each extractor that is made, in order; none is loaded at first."""
    made = []

    class Extractor(tutorial.FeatureExtractor):
        def __init__(self, config):
            made.append(config)
            super().__init__(config)

    monkeypatch.setattr(tutorial, "FeatureExtractor", Extractor)
    tutorial._extractor.cache_clear()
    yield made
    tutorial._extractor.cache_clear()  # they are of a class of the test


def call(toy, layers, **settings):
    return get_features(["a b"], checkpoint=toy, layers=layers, **SETTINGS, **settings)


@pytest.mark.slow
def test_two_models_stay_loaded(toy, made):
    for layers in (-1, "-1,-2", -1, "-1,-2", [-1, 0], -1):
        call(toy, layers)
    call(toy, (-1,), dim=3)  # the same layer in another form; dim is cut off afterwards
    assert [config.outputs[0].layers for config in made] == [(-1,), (-1, -2), (-1, 0), (-1,)]


def test_the_files_of_a_loaded_model_may_go(toy, made, tmp_path):
    shutil.copytree(toy, tmp_path / "copy")
    call(tmp_path / "copy", -1)
    shutil.rmtree(tmp_path / "copy")
    call(toy, -1)
    assert len(made) == 2


@pytest.mark.slow
def test_a_relative_name_means_another_model_in_another_folder(toy, made, tmp_path, monkeypatch):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "uncased_toy").symlink_to(toy)
        monkeypatch.chdir(folder)
        call("uncased_toy", -1)
        call("uncased_toy", -1)
    assert len(made) == 2


def test_a_second_short_call_traces_no_graph(toy, made):
    """Tracing takes longer than many short calls."""
    first, second, third = (call(toy, -1) for _ in range(3))
    (config,) = made
    extractor = tutorial._extractor(config, Path.cwd())
    assert len(made) == 1
    assert extractor.tokenizer._exact.traces == 0
    assert extractor.traces == 1
    for pairs in (second[0], third[0]):
        for (token, vector), (same, wanted) in zip(pairs, first[0], strict=True):
            assert token == same
            np.testing.assert_array_equal(vector, wanted)


def test_wrong_layers_are_one_error(toy):
    with pytest.raises(ConfigError, match="layers"):
        call(toy, 1.5)
