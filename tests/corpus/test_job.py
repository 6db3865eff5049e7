"""A run into a folder of shards: whole, begun again, gone on with, refused."""

import gzip
import json
import os
import shutil

import numpy as np
import pytest

from bert_features import extract, find_checkpoint, read_features
from bert_features.checkpoints.convert import convert
from bert_features.corpus import run, shards
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.files.checksums import checksum_of_file
from bert_features.formats.manifest import Manifest
from bert_features.machine.shares import Share
from tests.corpus.runs import EXAMPLES, extract_until, shards_of, stop_after
from tests.readers.inputs import standard_input
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights


@pytest.mark.parametrize("format", ["parquet", "jsonl", "npz"])
def test_the_shards_hold_what_one_file_holds(config, texts, tmp_path, format):
    out, seen = f"{tmp_path}/out/", []
    summary = extract(config(format=format), texts, out, progress=lambda *now: seen.append(now))
    assert {total for _, total in seen} == {EXAMPLES}
    extract(config(format=format), texts, tmp_path / f"one.{format}")
    one = read_features(tmp_path / f"one.{format}")
    manifest = Manifest.read(tmp_path / "out")
    assert [shard.records for shard in manifest.shards] == [6, 6, 6, 2]
    records = [r for i in range(4) for r in read_features(manifest.path(i))]
    assert len(records) == len(one) == summary.counts.examples == EXAMPLES
    for record, expected in zip(records, one, strict=True):
        assert (record.unique_id, record.tokens) == (expected.unique_id, expected.tokens)
        for name, values in expected.features.items():
            np.testing.assert_allclose(record.features[name], values, atol=1e-5)
    assert summary.shards == 4
    assert summary.output == tmp_path / "out"
    names = {path.name.partition(".")[0] for path in (tmp_path / "out").iterdir()}
    assert names == {"_manifest", *(f"part-0000{i}-of-00004" for i in range(4))}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("format", "read_again"),
    [("arrow", 0), ("parquet", 0), ("jsonl", 0), ("tfrecord", 0), ("npz", 1), ("hdf5", 1)],
)
def test_a_shard_is_not_read_again_for_its_checksum(
    config, texts, tmp_path, monkeypatch, format, read_again
):
    """Unless its writer goes back in the file."""
    read = []
    monkeypatch.setattr(
        shards, "checksum_of_file", lambda path: (read.append(path), checksum_of_file(path))[1]
    )
    extract(config(format=format), texts, f"{tmp_path}/out/")
    manifest = Manifest.read(tmp_path / "out")
    for i, entry in enumerate(manifest.finished):
        path = manifest.path(i)
        assert entry.crc32c == checksum_of_file(path)
        assert read.count(path) == read_again


def test_another_processor_is_named_in_a_warning(config, texts, tmp_path, caplog, monkeypatch):
    extract_until(13, config(), texts, f"{tmp_path}/out/")
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["processor"]
    monkeypatch.setattr(shards, "describe_processor", lambda kind: f"another {kind}")
    extract(config(), texts, f"{tmp_path}/out/")
    assert "was begun on another processor (" in caplog.text
    assert "; this is another cpu): the last digits of features may differ" in caplog.text


def test_shards_that_change_during_the_run_are_noticed_at_its_end(config, texts, tmp_path):
    def change(counts, total):
        if counts.examples > 13:
            (tmp_path / "out" / "part-00001-of-00004.parquet").write_bytes(b"")

    with pytest.raises(OutputError, match=r"1 shards of .* were changed .*part-00001.*; run"):
        extract(config(), texts, f"{tmp_path}/out/", progress=change)
    extract(config(), texts, f"{tmp_path}/whole/")
    extract(config(), texts, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")


def test_a_failed_run_goes_on_where_it_stopped(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/whole/")
    extract_until(13, config(), texts, f"{tmp_path}/out/")
    out = tmp_path / "out"
    kept = set(shards_of(out))
    assert kept == {"part-00000-of-00004.parquet", "part-00001-of-00004.parquet"}
    assert [shard for shard, _ in Manifest.read(out).finished_shards()] == [0, 1]
    times = {name: (out / name).stat().st_mtime_ns for name in kept}

    summary = extract(config(), texts, out)  # the folder is known by its manifest
    assert shards_of(out) == shards_of(tmp_path / "whole")
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == times
    assert summary.before.examples == 12
    assert summary.counts.examples == EXAMPLES


def test_a_finished_run_is_not_run_again(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    summary = extract(config(), texts, f"{tmp_path}/out/", progress=stop_after(0))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before
    assert summary.before.examples == summary.counts.examples == EXAMPLES


def test_a_shard_that_is_missing_or_cut_is_computed_again(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    expected = shards_of(tmp_path / "out")
    (tmp_path / "out" / "part-00001-of-00004.parquet").unlink()
    os.truncate(tmp_path / "out" / "part-00003-of-00004.parquet", 100)
    summary = extract(config(), texts, f"{tmp_path}/out/")
    assert summary.before.examples == 12
    assert shards_of(tmp_path / "out") == expected


@pytest.mark.parametrize("name", ["in.txt", "in.csv", "in.json.gz", "-"])
@pytest.mark.parametrize("output", ["out.parquet", "out/"])
def test_an_input_without_examples_is_refused(config, tmp_path, monkeypatch, name, output):
    standard_input(monkeypatch, "")
    if name != "-":
        (tmp_path / name).write_bytes(gzip.compress(b"[]") if name.endswith("gz") else b"")
        name = str(tmp_path / name)
    elif output == "out/":
        return  # needs a file
    with pytest.raises(ConfigError, match="has no examples"):
        extract(config(), name, f"{tmp_path}/{output}")
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packing": True}, "begun by a run with packing None"),
        ({"layers": (-1,)}, r"begun by a run with layers \[-1, -2\], now \[-1\]; pass the same"),
        (
            {"dtype": "float16", "shard_examples": 7},
            r"dtype 'float32', now 'float16'; shard_examples 6, now 7; pass",
        ),
        ({"dedupe": True}, r"now True; pass the same to resume it \(cache turns on dedupe"),
        ({"format": "npz"}, "format"),
    ],
)
def test_other_settings_are_refused_by_name(config, texts, tmp_path, settings, message):
    extract(config(), texts, f"{tmp_path}/out/")
    with pytest.raises(ConfigError, match=message):
        extract(config(**settings), texts, f"{tmp_path}/out/")


@pytest.mark.slow
def test_other_weights_are_refused_and_the_same_in_other_files_are_not(
    config, toy, texts, tmp_path
):
    mine = shutil.copytree(toy, tmp_path / "uncased_mine")
    extract_until(7, config(checkpoint=str(mine)), texts, f"{tmp_path}/out/")
    shutil.rmtree(mine)
    convert(find_checkpoint(toy), mine, to="safetensors")
    assert extract(config(checkpoint=str(mine)), texts, f"{tmp_path}/out/").before.examples == 6
    shutil.rmtree(mine)
    write_directory(mine, TOY, TOY_VOCAB, random_weights(TOY, seed=5), kind="tf1")
    with pytest.raises(ConfigError, match=r"with checkpoint\.sha256 '"):
        extract(config(checkpoint=str(mine)), texts, f"{tmp_path}/out/")


def test_an_input_that_was_only_copied_is_not(config, texts, tmp_path):
    extract_until(7, config(), texts, f"{tmp_path}/out/")
    os.utime(texts, (1, 1))
    assert extract(config(), texts, f"{tmp_path}/out/").before.examples == 6


def test_an_input_that_changes_during_the_run_is_refused(config, texts, tmp_path):
    def change(counts, total):
        if counts.examples >= 7:
            texts.write_text(texts.read_text().replace("no\n", "it\n"))

    with pytest.raises(InputError, match=r"in\.txt has changed"):
        extract(config(), texts, f"{tmp_path}/out/", progress=change)
    assert "part-00003-of-00004.parquet" not in shards_of(tmp_path / "out")


def test_what_is_read_is_not_in_the_folder(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    inside = shutil.copy(texts, tmp_path / "out" / "in.txt")
    with pytest.raises(OutputError, match=r"the input, .*, is in the output folder"):
        extract(config(), inside, f"{tmp_path}/out/", overwrite=True)
    assert (tmp_path / "out" / "in.txt").exists()


def test_one_shard_is_computed_with_all_devices(config, texts, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(run, "share_out", lambda count, device: [Share(cores=frozenset())] * count)
    monkeypatch.setattr(run, "Processes", None)  # no process is started
    extract(config(shard_examples=100), texts, f"{tmp_path}/out/", processes=3)
    assert "only 1 of 3 processes compute" in caplog.text
    assert len(shards_of(tmp_path / "out")) == 1


@pytest.mark.parametrize("change", ["truncated", "longer", "replaced"])
def test_an_input_that_changes_while_it_is_read(config, many, tmp_path, quick, change):
    """What is written to may be of two versions; a file that was replaced was read whole."""
    path, new, out = tmp_path / "in.txt", tmp_path / "new.txt", tmp_path / "f.npz"
    shutil.copy(many, path)
    shutil.copy(many, new)

    def meanwhile(counts, total):
        if change == "truncated":
            os.truncate(path, path.stat().st_size - 5)
        elif change == "longer":
            with path.open("a") as file:
                file.write("the a\n")
        elif new.exists():
            new.rename(path)

    settings = config(level="sequence", layers=-1)
    if change == "replaced":
        extract(settings, path, out, progress=meanwhile)
        assert len(read_features(out)) == len(many.read_text().splitlines())
        return
    with pytest.raises(InputError, match="was changed while it was read"):
        extract(settings, path, out, progress=meanwhile)
    assert not out.exists()
