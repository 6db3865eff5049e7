"""int8 and binary outputs of runs: a scale from the first texts or a file, the same everywhere."""

import copy
import dataclasses
import functools
import os
from types import SimpleNamespace

import numpy as np
import pytest

from bert_features import ExtractConfig, extract, nearest, plan, read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.features import OutputSpec
from bert_features.corpus.job import repair
from bert_features.corpus.shards import ShardJob, ShardWriter
from bert_features.corpus.worker import write_shard
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction import scales
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.recipe import make_recipe
from bert_features.extraction.scales import add_scales, scales_of_files
from bert_features.formats import open_writer
from bert_features.formats.manifest import Manifest
from bert_features.formats.records import Feature, FeatureBatch
from tests.corpus.runs import StopRun, computing_each, shards_of, stop_after
from tests.formats.feature_files import make_batch, write
from tests.reference.small_vectors import to_bits, to_int8
from tests.toy import TOY

pytestmark = pytest.mark.usefixtures("kept_steps")

RNG = np.random.default_rng(2)
WORDS = ["this", "is", "jacksonville", "no", "the", "a b", "not it ?"]
TEXTS = [" ".join(WORDS[i * j % 7] for j in range(1 + i % 5)) for i in range(26)]
MEAN = {"level": "sequence", "pooling": "mean", "layers": [-1]}
FLOATS, INT8, BINARY = (
    {"name": dtype, "dtype": dtype, **MEAN} for dtype in ("float32", "int8", "binary")
)
SOME = OutputSpec("some", (-1,), "none", 8, "float32", "sequence", "mean", states=(3,))
ALL = [FLOATS, INT8 | {"scale_from": 8}, BINARY]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.fixture
def config(toy):
    def make(*outputs, **settings):
        fixed = {"checkpoint": toy, "max_seq_length": 12, "buckets": (12,), "batch_size": 4}
        return ExtractConfig.of({**fixed, "shard_examples": 6, "outputs": outputs, **settings})

    return make


def vectors(path, name, **options):
    return read_features(path, **options).ragged(name)[0]


def test_small_vectors_are_those_of_the_reference(config, texts, tmp_path, caplog):
    caplog.set_level("INFO", "bert_features")
    counts = extract(config(*ALL), texts, tmp_path / "out.npz").counts
    assert "int8 vectors take the scale of the first 8 texts" in caplog.text
    floats = vectors(tmp_path / "out.npz", "float32")
    codes = vectors(tmp_path / "out.npz", "int8").astype(int)
    assert np.abs(codes - to_int8(floats, floats[:8])).max() <= 1  # the first 8 are a batch apart
    np.testing.assert_array_equal(vectors(tmp_path / "out.npz", "binary"), to_bits(floats))
    _, feature, _ = read_features(tmp_path / "out.npz").features
    np.testing.assert_allclose(feature.scale[0], floats[:8].min(axis=0), atol=1e-6)
    np.testing.assert_allclose(feature.scale[1], floats[:8].max(axis=0), atol=1e-6)
    clipped = (to_int8(floats, floats[:8], clip=False) != to_int8(floats, floats[:8])).sum(axis=1)
    assert 0 < clipped.sum() == counts.values_clipped < counts.values_int8 == floats.size
    assert f"{clipped.sum()} of {floats.size} values of int8 vectors (" in caplog.text
    (losses,) = read_features(tmp_path / "out.npz").metadata["losses"].values()
    assert losses == {"count": clipped.sum(), "first_ids": np.flatnonzero(clipped)[:10].tolist()}


@pytest.mark.parametrize(
    ("feature", "changes", "differences"),
    [
        ({}, {}, ""),
        ({"layers": (TOY.num_hidden_layers - 1,)}, {}, ""),  # the same layer
        ({"dtype": "float16", "name": "x"}, {"versions": {}, "arithmetic.precision": "x"}, ""),
        ({"pooling": "max", "layers": (-2,)}, {}, r"layers \[-2\] .*; pooling 'max'"),
        ({}, {"checkpoint.sha256": "ab"}, "checkpoint 'ab'"),
        ({}, {"texts.long_text": "tail", "vocabulary.sha256": "1"}, "long_text .*vocabulary.sha"),
        ({}, {"texts": None}, None),
        ({}, {"checkpoint": "ab"}, None),
    ],
    ids=str,
)
def test_a_scale_that_was_made_in_another_way(
    config, tmp_path, caplog, feature, changes, differences
):
    path = tmp_path / "vectors.npz"
    extractor = kept_extractor(config(INT8 | {"scale_from": str(path)}))
    made = dataclasses.replace(SOME, **feature)
    recipe = copy.deepcopy(make_recipe(extractor.preparation, (made,), {}).to_json())
    for place, value in changes.items():
        *names, last = place.split(".")
        functools.reduce(dict.__getitem__, names, recipe)[last] = value
    values = RNG.normal(size=(9, 8)).astype(made.dtype)
    with open_writer(path, format="npz", features=(made,), metadata={"recipe": recipe}) as writer:
        writer.write(FeatureBatch(np.arange(9), {made.name: values}))
    if differences:
        with pytest.raises(ConfigError, match=f"{path} was made with .*{differences}"):
            extractor.with_all_scales()
    else:
        extractor.with_all_scales()
    assert ("does not record how it was made" in caplog.text) is (differences is None)


def kept_extractor(settings):
    """The extractor of the runs with these settings."""
    return FeatureExtractor(settings, checkpoint=find_checkpoint(settings.checkpoint))


def scale_of(config, path):
    """The scale that an output takes from a file, without a model."""
    outputs = config(INT8 | {"scale_from": str(path)}).plan_outputs(TOY)
    return scales_of_files(outputs, SimpleNamespace(checkpoint=None))["int8"]


@pytest.mark.parametrize("format", ["npz", "parquet"])
def test_scales_of_a_file(config, tmp_path, format, monkeypatch):
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_RECORDS", 20)
    path, wanted = tmp_path / f"vectors.{format}", RNG.normal(size=(90, 8)).astype(np.float32)
    vectors_file(path, format, (SOME,), wanted)
    least, largest = scale_of(config, path)
    np.testing.assert_array_equal(least, wanted.min(axis=0))
    np.testing.assert_array_equal(largest, wanted.max(axis=0))


def test_scales_of_a_file_of_int8_are_its_own(config, tmp_path):
    scale = tuple(map(tuple, np.sort(RNG.normal(size=(2, 8)), axis=0).tolist()))
    own = dataclasses.replace(SOME, name="int8", dtype="int8", scale=scale)
    codes = np.zeros((3, 8), np.int8)
    vectors_file(tmp_path / "f.npz", "npz", (SOME, own), codes.astype(np.float32), codes)
    assert scale_of(config, tmp_path / "f.npz") == scale


def vectors_file(path, format, features, *columns):
    sequence = {f.name: values for f, values in zip(features, columns, strict=True)}
    write(path, format, features, FeatureBatch(np.arange(len(columns[0])), sequence))


def test_in_memory_with_scales_of_a_file(config, texts, tmp_path):
    path = tmp_path / "vectors.npz"
    vectors_file(path, "npz", (SOME,), RNG.normal(size=(90, 8)).astype(np.float32))
    settings = config(INT8 | {"scale_from": str(path)})
    extract(settings, texts, tmp_path / "out.arrow")
    found = kept_extractor(settings)
    assert found.encode(TEXTS).dtype == found([TEXTS[0]])[0].features["int8"].dtype == np.int8
    np.testing.assert_allclose(found.encode(TEXTS), vectors(tmp_path / "out.arrow", "int8"), atol=1)


@pytest.mark.parametrize(
    ("alike", "count", "warns"),
    [
        (1, 1, "from a single text,"),
        (5, 5, "from 5 texts that are all alike,"),
        (5, 6, ""),
        (5, 1000, ""),  # all texts of the run
    ],
)
def test_first_texts_that_are_alike_are_a_warning(config, caplog, alike, count, warns):
    first = np.repeat(RNG.normal(size=(1, 8)), alike, axis=0)
    first *= 1 + RNG.normal(size=first.shape) * 1e-6  # rounding of another batch
    found = np.concatenate([first, RNG.normal(size=(20, 8))][: 2 - (count == 1000)])
    outputs = config(INT8 | {"scale_from": count}).plan_outputs(TOY)

    def compute(head):
        yield FeatureBatch(np.arange(len(head)), {"int8": found[: len(head)].astype(np.float32)})

    _, examples = add_scales(outputs, iter(range(len(found))), compute)
    assert list(examples) == list(range(len(found)))
    cure = "set scale_from to more texts, or to a features file"
    assert caplog.text.count(cure) == bool(warns)
    assert warns in caplog.text


def test_all_shards_have_one_scale(config, texts, tmp_path):
    whole = config(*ALL)
    extract(whole, texts, f"{tmp_path}/whole/")
    file = read_features(tmp_path / "whole", verify=True)
    extract(whole, texts, tmp_path / "one.parquet")
    assert file.features == read_features(tmp_path / "one.parquet").features
    np.testing.assert_allclose(
        file.ragged("int8")[0], vectors(tmp_path / "one.parquet", "int8"), atol=1
    )
    # A share alone, as on a machine that knows of no others.
    extract(config(*ALL, shard="1/2"), texts, tmp_path / "share.parquet")
    (share,) = map(read_features, tmp_path.glob("share-*"))
    assert share.features == file.features


def test_a_run_that_is_resumed_keeps_its_scales(config, texts, tmp_path, monkeypatch):
    extract(config(*ALL), texts, f"{tmp_path}/whole/")
    with pytest.raises(StopRun):
        extract(config(*ALL), texts, f"{tmp_path}/out/", progress=stop_after(13))
    assert len(shards_of(tmp_path / "out")) == 2
    # It takes no texts again.
    monkeypatch.setattr(scales, "_scales_of_texts", None)
    extract(config(*ALL), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")
    Manifest.read(tmp_path / "out").path(2).unlink()
    assert len(repair(tmp_path / "out")) == 1
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")


def test_a_manifest_with_other_scales_than_its_shards_is_refused(config, texts, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(StopRun):
        extract(config(*ALL), texts, f"{out}/", progress=stop_after(13))
    manifest = Manifest.read(out)
    changed = copy.deepcopy(manifest)
    name = min(n for n, output in manifest.recipe.outputs.items() if output.get("scale"))
    changed.recipe.outputs[name]["scale"][1][0] += 0.5
    changed.write()
    before = shards_of(out)
    with pytest.raises(OutputError, match=f"another scale of '{name}' than the manifest"):
        extract(config(*ALL), texts, f"{out}/")
    assert shards_of(out) == before
    manifest.write()
    extract(config(*ALL), texts, f"{out}/")


def other_scale(recipe, scale):
    """A recipe whose int8 outputs have another scale, or none."""
    changed = copy.deepcopy(recipe)
    for output in changed.outputs.values():
        if output.pop("scale", None) and scale:
            output["scale"] = scale
    return changed


def test_workers_take_the_scale_of_the_run(config, texts, tmp_path):
    """Those of the first worker that was ready, which may be another kind of machine."""
    extract(config(*ALL), texts, f"{tmp_path}/out/")
    before = shards_of(tmp_path / "out")
    manifest = Manifest.read(tmp_path / "out")
    fresh = dataclasses.replace(manifest, recipe=other_scale(manifest.recipe, None))
    job = ShardJob(config(*ALL, format="parquet"), fresh)
    writer = ShardWriter.load(job)  # finds its own
    assert writer.ready.recipe.outputs == manifest.recipe.outputs
    assert writer.ready.recipe.to_json()["canaries"] == manifest.recipe.to_json()["canaries"]
    other = other_scale(manifest.recipe, [[-4.0] * 8, [4.0] * 8])
    write_shard(writer, 0, other, lambda message: None)
    (_, feature, _) = read_features(manifest.path(0)).features
    assert feature.scale == ((-4.0,) * 8, (4.0,) * 8)
    write_shard(writer, 0, manifest.recipe, lambda message: None)
    assert shards_of(tmp_path / "out") == before


def test_small_vectors_take_the_floats_of_a_cache(config, texts, tmp_path):
    for dtype in ("float32", "int8", "binary"):
        settings = config(FLOATS | {"dtype": dtype}, cache=str(tmp_path / "cache"))
        found = extract(settings, texts, tmp_path / f"{dtype}.npz").counts
        assert (found.examples_from_cache == found.examples) is (dtype != "float32")


def test_texts_that_repeat(config, texts, tmp_path):
    texts.write_text(texts.read_text() * 2)
    extract(config(*ALL, dedupe=True), texts, tmp_path / "once.npz")
    with computing_each():
        extract(config(*ALL, dedupe=True), texts, tmp_path / "out.npz")
    for name in ("float32", "int8", "binary"):
        np.testing.assert_array_equal(
            vectors(tmp_path / "once.npz", name), vectors(tmp_path / "out.npz", name)
        )


def test_windows_are_averaged_before(config, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{' '.join(TEXTS[i:])}\n" for i in range(0, 26, 5)))
    outputs = [o | {"normalize": True} for o in ALL]
    extract(config(*outputs, long_text="window"), tmp_path / "in.txt", tmp_path / "out.npz")
    floats = vectors(tmp_path / "out.npz", "float32")
    np.testing.assert_allclose(np.linalg.norm(floats, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors(tmp_path / "out.npz", "binary"), to_bits(floats))


def test_more_texts_than_a_computer_counts(config, texts, tmp_path, caplog):
    summary = extract(config(INT8 | {"scale_from": 10**30}), texts, f"{tmp_path}/out/")
    assert len(read_features(tmp_path / "out")) == len(TEXTS)
    # Shards have other batches than those of the scale: the last digits differ.
    assert summary.counts.values_clipped == 0 < summary.counts.values_int8
    assert "int8 vectors (" not in caplog.text


@pytest.mark.slow
def test_neighbors_of_small_vectors(config, texts, tmp_path):
    extract(config(*ALL), texts, tmp_path / "out.parquet")
    floats = vectors(tmp_path / "out.parquet", "float32")
    signs = vectors(tmp_path / "out.parquet", "binary", floats=True)
    query = floats[5]
    by_text = {
        name: nearest(tmp_path / "out.parquet", TEXTS[5], feature=name, top=3)
        for name in ("float32", "int8", "binary")
    }
    for hit, expected in zip(by_text["int8"], by_text["float32"], strict=True):
        assert hit.similarity == pytest.approx(expected.similarity, abs=0.01)
    cosines = signs @ query / (np.linalg.norm(query) * 8**0.5)
    assert [hit.similarity for hit in by_text["binary"]] == pytest.approx(
        sorted(cosines, reverse=True)[:3], abs=1e-5
    )


def test_the_plan_knows_their_size(config, texts):
    found = plan(config(*ALL), texts)
    assert found.output_bytes("parquet") == 26 * (8 * 4 + 8 + 1)
    assert found.output_bytes("jsonl") < 26 * (8 * 10.5 + 8 * 5 + 5)
    assert "int8 int8 [8]" in repr(found)


@pytest.mark.parametrize("name", ["no.npz", "equal.npz", "nan.npz", "words.npz", "pipe.npz"])
def test_a_scale_file_that_gives_none_is_refused(config, texts, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    vectors_file("nan.npz", "npz", (SOME,), np.full((3, 8), np.nan, np.float32))
    equal = dataclasses.replace(SOME, dtype="int8", scale=((0.5,) * 8,) * 2)
    vectors_file("equal.npz", "npz", (equal,), np.zeros((3, 8), np.int8))
    words = Feature("w", (-1,), "none", 8, "float32", "word", "mean")
    write(tmp_path / "words.npz", "npz", (words,), make_batch((words,), [2, 3]))
    os.mkfifo("pipe.npz")
    settings = config(INT8 | {"scale_from": name})
    for use in (plan, lambda *given: extract(*given, tmp_path / "out.npz")):
        with pytest.raises((ConfigError, OutputError), match=name):
            use(settings, texts)
    assert not (tmp_path / "out.npz").exists()
