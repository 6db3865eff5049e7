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
from bert_features.extraction import extractor as extractors
from bert_features.formats.manifest import Manifest
from tests.corpus.runs import extract_until, shards_of

# What jaxlib 0.10.2 gave instead of 1,073,741,824 (jax-ml/jax#39103).
FAULT = 1065369600 / 1073741824
REFUSED = (
    r"computes other numbers of 'layer_output_0' .*differ by 7\.\de-03, .* run bert-features doc"
)


@pytest.fixture
def wrong_sums(monkeypatch):
    """From when it is called on each result of the device is too small by the factor of a fault."""
    run_step = extractors.run_step

    def wrong(*arguments, **options):
        for item, outputs in run_step(*arguments, **options):
            yield item, {name: values * np.float32(FAULT) for name, values in outputs.items()}

    return lambda: monkeypatch.setattr(extractors, "run_step", wrong)


def change_run(folder, **facts):
    manifest = Manifest.read(folder)
    replace(manifest, run=manifest.run | facts).write()


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
    began, first = Manifest.read(out).run, shards_of(out)
    change_run(out, versions=began["versions"] | {"keras": "3.1"})
    with pytest.raises(
        OutputError, match=r"keras '3\.1', now .*, accept_new_numbers=True to mix both, or"
    ):
        extract(config(), texts, f"{out}/")
    wrong_sums()
    extract(config(), texts, f"{out}/", accept_new_numbers=True)
    run = Manifest.read(out).run
    assert run["versions"] == began["versions"]
    assert run["canaries"] != began["canaries"]
    (earlier,) = run["earlier"]
    assert earlier == {
        "versions": began["versions"] | {"keras": "3.1"},
        "canaries": began["canaries"],
        "finished_shards": 1,
    }
    assert shards_of(out).items() > first.items()
    paths = [Manifest.read(out).path(shard) for shard in range(2)]
    old, new = (read_features(path).passport for path in paths)
    assert str(old.compare(new)[0]).startswith("not comparable: other numbers by the same settings")
    # No single canaries stand for such a folder.
    (found, _) = read_features(out).passport.compare(new)
    assert "out (of shards with other numbers) has no canaries" in str(found)
    # From then on these are the numbers of the run.
    Manifest.read(out).path(3).unlink()
    assert len(repair(out)) == 1
    assert Manifest.read(out).run == run


def test_each_process_keeps_its_own_numbers_once_new_ones_are_accepted(config, texts, tmp_path):
    """As on Ray with machines of two kinds: the first would refuse the others."""
    out = tmp_path / "out"
    extract(config(), texts, f"{out}/")
    manifest = with_new_numbers(Manifest.read(out), {"keras": "3.1"})
    writer = ShardWriter.load(ShardJob(config(format="parquet"), manifest))
    own = writer.ready.shared["canaries"]
    rows = own["layer_output_0"]
    writer.share({"canaries": {"layer_output_0": [rows[1], *rows[1:]]}})
    write_shard(writer, 0, {"canaries": {"layer_output_0": rows[::-1]}}, lambda message: None)
    found = read_features(Manifest.read(out).path(0)).metadata["canaries"]
    assert found == json.loads(json.dumps(own))


def test_where_nothing_is_new_nothing_is_recorded(config, texts, tmp_path):
    out = tmp_path / "out"
    extract_until(8, config(), texts, f"{out}/")
    began = Manifest.read(out).run
    extract(config(), texts, f"{out}/", accept_new_numbers=True)
    assert Manifest.read(out).run == began | {"earlier": []}
    assert len(read_features(out).passport.features["layer_output_0"].canaries) == 8
    extract(config(), texts, f"{tmp_path}/whole/")
    assert shards_of(out) == shards_of(tmp_path / "whole")


def test_a_run_of_an_earlier_release_has_no_canaries(config, texts, tmp_path, wrong_sums):
    out = tmp_path / "out"
    extract_until(8, config(), texts, f"{out}/")
    manifest = Manifest.read(out)
    replace(manifest, run={k: v for k, v in manifest.run.items() if k != "canaries"}).write()
    extract(config(), texts, f"{out}/")
    assert len(shards_of(out)) == 4
    # Only some of its shards have canaries.
    assert not read_features(out).passport.features["layer_output_0"].canaries


def test_each_process_compares(config, texts, tmp_path):
    """A process of a run that computes other numbers than the first one ends it."""
    out = tmp_path / "out"
    extract(config(), texts, f"{out}/")
    manifest, whole = Manifest.read(out), shards_of(out)
    own = manifest.run["canaries"]
    rows = own["layer_output_0"]
    other = own | {"layer_output_0": [rows[1], *rows[1:]]}
    job = ShardJob(config(format="parquet"), manifest)
    writer = ShardWriter.load(job)
    with pytest.raises(OutputError, match=r"computes other numbers of 'layer_output_0'"):
        write_shard(writer, 0, {"canaries": other}, lambda message: None)
    write_shard(writer, 0, {"canaries": own}, lambda message: None)
    assert shards_of(out) == whole
    with pytest.raises(OutputError, match=r"computes other numbers of 'layer_output_0'"):
        ShardWriter.load(replace(job, manifest=replace(manifest, run={"canaries": other})))


def test_every_shard_has_the_canaries_of_the_run(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    manifest = Manifest.read(tmp_path / "out")
    for shard in range(len(manifest.shards)):
        metadata = read_features(manifest.path(shard)).metadata
        assert metadata["canaries"] == json.loads(json.dumps(manifest.run["canaries"]))
    passport = read_features(tmp_path / "out").passport
    assert [str(c) for c in passport.compare(passport)] == ["the same space, equal to 1e-5"] * 2


def test_it_is_for_folders(config, texts, tmp_path):
    with pytest.raises(ConfigError, match=r"accept_new_numbers is for a folder, .* a single file"):
        extract(config(), texts, tmp_path / "out.npz", accept_new_numbers=True)


def test_a_run_that_begins_again_has_no_other_numbers(config, texts, tmp_path):
    options = {"accept_new_numbers": True, "overwrite": True}
    with pytest.raises(ConfigError, match="accept_new_numbers and overwrite are both set, and a"):
        extract(config(), texts, f"{tmp_path}/out/", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "facts",
    [{"canaries": [1]}, {"canaries": {"layer_output_0": 7}}, {"earlier": {}}, {"earlier": [3]}],
    ids=str,
)
def test_damaged_canaries_of_a_manifest_are_one_clear_error(config, texts, tmp_path, facts):
    extract_until(8, config(), texts, f"{tmp_path}/out/")
    change_run(tmp_path / "out", **facts)
    for again in (extract, lambda config, texts, out: repair(out)):
        with pytest.raises(OutputError, match=r"cannot read .*_manifest\.json: it is damaged"):
            again(config(), texts, f"{tmp_path}/out/")
