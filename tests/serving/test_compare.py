"""compare: files, folders, services, exports, settings and checkpoints on both sides."""

import functools
import json
import shutil

import numpy as np
import pytest

from bert_features import (
    Client,
    ExtractConfig,
    FeatureExtractor,
    compare,
    export_savedmodel,
    extract,
    nearest,
    read_features,
)
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.serve_settings import TOKEN
from bert_features.errors import CheckpointError, ConfigError, OutputError, ServiceError
from bert_features.export import loading
from bert_features.neighbors import queries
from tests.cli.command_line import run
from tests.serving.conftest import OUTPUTS
from tests.serving.over_http import over_http

pytestmark = pytest.mark.usefixtures("kept_steps")

SETTINGS = {"do_lower_case": True, "max_seq_length": 16}
MEAN = {"level": "sequence", "pooling": "mean", "layers": (-1,)}
EQUAL, CLOSER = "same: equal to 1e-5", "rounded: cosine at least"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text("a b\nthe jacksonville is not\nno\nthis is jack ?\n")
    return path


@pytest.fixture(scope="module")
def make(toy, texts, tmp_path_factory):
    """Writes a features file or folder with some settings; gives its path."""
    folder = tmp_path_factory.mktemp("files")

    def make(name, **settings):
        if not (folder / name).exists():
            config = ExtractConfig.of({"checkpoint": toy, **SETTINGS, **MEAN, **settings})
            extract(config, texts, str(folder / name) + "/" * ("." not in name))
        return folder / name

    return make


def said(a, b, **options):
    (found,) = compare(a, b, **options)
    return str(found)


@pytest.mark.slow
def test_files_and_folders(make):
    one, shards = make("mean.npz"), make("mean", shard_examples=2)
    assert said(one, shards) == said(str(shards), read_features(one)) == EQUAL
    assert said(one, make("half.parquet", dtype="float16")).startswith(CLOSER)
    assert said(one, make("max.parquet", pooling="max")) == ("other: pooling 'mean' and 'max'")
    both = make("both.npz", level="token", pooling=None, layers=(-1, -2))
    found = compare(both, make("other.npz", level="token", pooling=None, layers=(-2, -1)))
    assert [str(c) for c in found] == ["other: layers [-1] and [-2]", "other: layers [-2] and [-1]"]
    assert len(compare(both, both, feature="layer_output_1")) == 1


def test_a_checkpoint_takes_the_settings_of_the_other_side(make, toy, tmp_path):
    one = make("mean.npz")
    assert said(one, toy) == said(toy, one) == EQUAL
    assert said(make("small.npz", dtype="int8", scale_from="4"), toy).startswith(CLOSER)
    same = convert(find_checkpoint(toy), tmp_path / "uncased_same", to="safetensors")
    assert said(one, same) == EQUAL
    with pytest.raises(CheckpointError, match="absent is neither"):
        compare(one, tmp_path / "absent")


def test_settings_and_objects(make, toy, tmp_path):
    config = ExtractConfig.of({"checkpoint": toy, **SETTINGS, **MEAN})
    file = tmp_path / "settings.toml"
    file.write_text(
        f'checkpoint = "{toy}"\ndo_lower_case = true\nmax_seq_length = 16\n'
        'level = "sequence"\npooling = "mean"\nlayers = [-1]\n'
    )
    extractor = FeatureExtractor(config)
    for side in (config, file, extractor, extractor.recipe):
        assert said(side, make("mean.npz")) == EQUAL
    assert said(file, toy) == EQUAL  # it takes the settings of the file
    with pytest.raises(ConfigError, match="int has no recipe"):
        compare(make("mean.npz"), 3)


def test_floats_of_small_vectors_are_no_floats(make):
    small = make("small.npz", dtype="int8", scale_from="4")
    with read_features(small, floats=True) as floats:
        assert said(floats, make("mean.npz")).startswith(CLOSER)
        assert said(floats[:2], small) == EQUAL


@pytest.mark.parametrize("rule", ["2", "2/1"])
def test_chunks_are_searched_and_compared_whatever_their_rule(make, toy, rule):
    common = {"level": "span", "pooling": "mean"}
    chunks = make(f"chunks_{rule[0]}{rule[2:]}.npz", spans=rule, **common)
    (found, *_) = nearest(chunks, "a b")
    assert found.span is not None
    assert said(chunks, make("three.npz", spans="3", **common)) == EQUAL
    assert said(chunks, toy) == EQUAL


def test_a_service(url, make, extractor):
    one = make("mean.npz")
    assert said(one, url) == EQUAL
    wrong = make("first.npz", layers=(0,))
    assert said(f"{url}/", wrong, feature="mean=features") == "other: layers [-1] and [-3]"
    with Client(url, expect=one) as client:
        names = {spec["name"] for spec in OUTPUTS}
        assert names <= client.recipe.outputs.keys()
        assert len(compare(client, extractor)) == len(client.recipe.outputs)
        assert {str(c) for c in compare(client, extractor)} == {EQUAL}
        assert client.info()["recipe"] == json.loads(json.dumps(extractor.recipe.to_json()))
    for expected in (wrong, str(wrong), read_features(wrong), read_features(wrong).recipe):
        message = r"no feature of the same name or recipe; .*first.npz has features, and http"
        with pytest.raises(ServiceError, match=message):
            Client(url, expect=expected)


def test_the_token_of_a_service(service_of, make, monkeypatch):
    one, token = make("mean.npz"), "a-long-secret"
    with over_http(service_of(token=token)) as url:
        assert said(one, url, token=token) == EQUAL
        with pytest.raises(ServiceError, match="token"):
            compare(one, url)
        monkeypatch.setenv(TOKEN, token)
        done = run("compare", one, url)
        assert (done.exit_code, done.stdout) == (0, f"features = mean: {EQUAL}\n")


@pytest.mark.slow
@pytest.mark.release
def test_an_export(make, toy, tmp_path, monkeypatch):
    # Loading takes a second; what is beside the export is read again each time.
    monkeypatch.setattr(loading, "load_export", functools.cache(loading.load_export))
    options = {"checkpoint": toy, "max_seq_length": 16, "do_lower_case": True}
    outputs = [{**MEAN, "name": "features"}, {"name": "tokens", "layers": (-2,)}]
    text = export_savedmodel(tmp_path / "text", signature="text", outputs=outputs, **options)
    assert said(make("mean.npz"), text) == EQUAL
    tokens = make("tokens.npz", level="token", pooling=None, layers=(-2,))
    assert said(tokens, text, feature=None) == EQUAL
    assert said(make("max.parquet", pooling="max"), text).startswith("other: pooling")
    ids = export_savedmodel(tmp_path / "ids", signature="ids", checkpoint=toy, outputs=outputs)
    answer = said(ids, text, feature="features")
    assert answer == "other: max_seq_length 24 and 16"
    shutil.copy(tmp_path / "text" / "recipe.json", tmp_path / "ids")
    assert said(ids, text, feature="features").endswith("ids has no canaries")
    (tmp_path / "ids" / "recipe.json").write_text("{")
    with pytest.raises(OutputError, match=r"recipe\.json"):
        compare(ids, text)


def test_a_search_with_other_numbers_is_refused(make, toy, monkeypatch):
    """Queries that a changed library computes have nothing to do with the vectors of a file."""
    one = make("mean.npz")
    nearest(one, "a b")
    rows = read_features(one).recipe.canaries["features"]
    changed = {"features": np.roll(rows, 1, axis=0)}
    monkeypatch.setattr(FeatureExtractor, "canaries", changed)
    queries._loaded.clear()
    message = r"do not give its feature 'features' .* here \(other numbers by the same recipe"
    with pytest.raises(OutputError, match=message):
        nearest(one, "a b")
