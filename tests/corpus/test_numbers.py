"""A run goes on only where the machine computes the numbers that it began with."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bert_features import extract, read_features
from bert_features.corpus.job import repair
from bert_features.corpus.resuming import with_new_numbers
from bert_features.corpus.shards import ShardJob, ShardWriter
from bert_features.corpus.worker import write_shard
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction import pipeline
from bert_features.formats.canaries import compare_recipes
from bert_features.formats.manifest import MANIFEST, Manifest
from tests.corpus.runs import extract_until, shards_of

# What jaxlib 0.10.2 gave instead of 1,073,741,824 (jax-ml/jax#39103).
FAULT = 1065369600 / 1073741824
REFUSED = (
    r"computes other numbers of 'layer_output_0' .*differ by 7\.\de-03, .* run bert-features doc"
)


@pytest.fixture
def wrong_sums(monkeypatch):
    """From when it is called on each result of the device is too small by the factor of a fault."""
    run_step = pipeline.run_step

    def wrong(*arguments, **options):
        for item, outputs in run_step(*arguments, **options):
            yield item, {name: values * np.float32(FAULT) for name, values in outputs.items()}

    return lambda: monkeypatch.setattr(pipeline, "run_step", wrong)


def change_recipe(folder, **facts):
    manifest = Manifest.read(folder)
    replace(manifest, recipe=replace(manifest.recipe, **facts)).write()


def canaries_of(recipe):
    return recipe.to_json()["canaries"]


def test_a_run_is_refused_where_other_numbers_come_out(config, texts, tmp_path, wrong_sums):
    extract(config(), texts, f"{tmp_path}/whole/")
    extract_until(8, config(), texts, f"{tmp_path}/out/")
    before = Manifest.read(tmp_path / "out")
    wrong_sums()
    with pytest.raises(OutputError, match=REFUSED):
        extract(config(), texts, f"{tmp_path}/out/")
    Manifest.read(tmp_path / "whole").path(1).unlink()
    with pytest.raises(OutputError, match=REFUSED):
        repair(tmp_path / "whole")
    assert Manifest.read(tmp_path / "out") == before
    assert len(shards_of(tmp_path / "out")) == 1


def test_new_numbers_can_be_accepted_and_are_recorded(config, texts, tmp_path, wrong_sums):
    out = tmp_path / "out"
    extract_until(8, config(), texts, f"{out}/")
    began, first = Manifest.read(out).recipe, shards_of(out)
    change_recipe(out, versions=began.versions | {"keras": "3.1"})
    with pytest.raises(
        ConfigError, match=r"keras '3\.1', now .*, accept_new_numbers=True to mix both, or"
    ):
        extract(config(), texts, f"{out}/")
    wrong_sums()
    extract(config(), texts, f"{out}/", accept_new_numbers=True)
    resumed = Manifest.read(out)
    assert resumed.recipe.versions == began.versions
    assert canaries_of(resumed.recipe) != canaries_of(began)
    (earlier,) = resumed.earlier
    assert earlier == {
        "versions": began.versions | {"keras": "3.1"},
        "canaries": canaries_of(began),
        "finished_shards": 1,
    }
    assert shards_of(out).items() > first.items()
    paths = [Manifest.read(out).path(shard) for shard in range(2)]
    old, new = (read_features(path).recipe for path in paths)
    (found, _) = compare_recipes(old, new)
    assert str(found).startswith("other: other numbers by the same recipe")
    # No single canaries stand for such a folder.
    (found, _) = compare_recipes(read_features(out).recipe, new)
    assert "out (of shards with other numbers) has no canaries" in str(found)
    # From then on these are the numbers of the run.
    Manifest.read(out).path(3).unlink()
    assert len(repair(out)) == 1
    again = Manifest.read(out)
    assert (again.recipe, again.earlier) == (resumed.recipe, resumed.earlier)
    assert canaries_of(again.recipe) == canaries_of(resumed.recipe)


def test_files_beside_the_weights_are_as_they_were(config, texts, tmp_path):
    out = tmp_path / "out"
    extract_until(8, config(), texts, f"{out}/")
    began = Manifest.read(out).recipe
    other = {"bert_config": began.checkpoint["bert_config"] | {"layer_norm_eps": 0.5}}
    for facts, difference in (
        ({"checkpoint": began.checkpoint | other}, r"layer_norm_eps 0\.5, now 1e-12"),
        ({"texts": began.texts | {"prompt": "query: "}}, "prompt 'query: ', now None"),
    ):
        change_recipe(out, **{"checkpoint": began.checkpoint, **facts})
        with pytest.raises(ConfigError, match=f"was begun by a run with .*{difference}; pass the"):
            extract(config(), texts, f"{out}/")


def test_each_process_keeps_its_own_numbers_once_new_ones_are_accepted(config, texts, tmp_path):
    """As on Ray with machines of two kinds: the first would refuse the others."""
    out = tmp_path / "out"
    extract(config(), texts, f"{out}/")
    manifest = with_new_numbers(Manifest.read(out), {"keras": "3.1"})
    writer = ShardWriter.load(ShardJob(config(format="parquet"), manifest))
    own = writer.ready.recipe
    rows = own.canaries["layer_output_0"]
    writer.share(replace(own, canaries={"layer_output_0": np.roll(rows, 1, axis=0)}))
    others = replace(own, canaries={"layer_output_0": rows[::-1]})
    write_shard(writer, 0, others, lambda message: None)
    assert canaries_of(read_features(Manifest.read(out).path(0)).recipe) == canaries_of(own)


def test_where_nothing_is_new_nothing_is_recorded(config, texts, tmp_path):
    out = tmp_path / "out"
    extract_until(8, config(), texts, f"{out}/")
    began = Manifest.read(out).recipe
    extract(config(), texts, f"{out}/", accept_new_numbers=True)
    assert Manifest.read(out).recipe == began
    assert Manifest.read(out).earlier == []
    assert len(read_features(out).recipe.canaries["layer_output_0"]) == 8
    extract(config(), texts, f"{tmp_path}/whole/")
    assert shards_of(out) == shards_of(tmp_path / "whole")


def test_each_process_compares(config, texts, tmp_path):
    """A process of a run that computes other numbers than the first one ends it."""
    out = tmp_path / "out"
    extract(config(), texts, f"{out}/")
    manifest, whole = Manifest.read(out), shards_of(out)
    own = manifest.recipe
    rows = own.canaries["layer_output_0"]
    other = replace(own, canaries=own.canaries | {"layer_output_0": np.roll(rows, 1, axis=0)})
    job = ShardJob(config(format="parquet"), manifest)
    writer = ShardWriter.load(job)
    with pytest.raises(OutputError, match=r"computes other numbers of 'layer_output_0'"):
        write_shard(writer, 0, other, lambda message: None)
    write_shard(writer, 0, own, lambda message: None)
    assert shards_of(out) == whole
    with pytest.raises(OutputError, match=r"computes other numbers of 'layer_output_0'"):
        ShardWriter.load(replace(job, manifest=replace(manifest, recipe=other)))


@pytest.mark.parametrize(
    ("place", "facts"),
    [
        ("recipe", {"canaries": [1]}),
        ("recipe", {"checkpoint": {"sha256": "ab", "bert_config": [1]}}),
        (None, {"earlier": {}}),
        (None, {"earlier": [3]}),
    ],
    ids=str,
)
def test_a_damaged_recipe_of_a_manifest_is_one_clear_error(config, texts, tmp_path, place, facts):
    extract_until(8, config(), texts, f"{tmp_path}/out/")
    path = tmp_path / "out" / MANIFEST
    content = json.loads(path.read_text())
    (content if place is None else content[place]).update(facts)
    path.write_text(json.dumps(content))
    for again in (extract, lambda config, texts, out: repair(out)):
        with pytest.raises(OutputError, match=r"_manifest\.json"):
            again(config(), texts, f"{tmp_path}/out/")
