"""Shuffled stores, beside plain NumPy: the order, the rows, and stores that are whole or not there.

The source has 400 texts of [CLS] pieces [SEP] with two layers of random numbers.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bert_features import compare, extract, nearest, read_features, shuffle_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.corpus import shuffle
from bert_features.corpus.job import repair
from bert_features.corpus.status import read_status
from bert_features.errors import ConfigError, OutputError
from bert_features.formats import open_writer
from bert_features.formats.manifest import Manifest
from bert_features.formats.records import FeatureBatch, Rows, splits_of
from tests.cli.command_line import run
from tests.corpus.runs import shards_of
from tests.formats.feature_files import SUFFIX, all_formats
from tests.formats.feature_folders import finish, make_manifest
from tests.recipes import make_recipe, metadata_of

CLS, SEP = 101, 102
FEATURES = (
    OutputSpec("layer_output_0", (-1,), "none", 5, "float32", states=(3,)),
    OutputSpec("layer_output_1", (-2,), "none", 3, "float16", states=(2,)),
)
WORD = OutputSpec("by_word", (-1,), "none", 2, "float32", "word", "mean", states=(3,))
TEXTS, SEED = 400, 7


def make_source(features=FEATURES, texts=TEXTS, ids=None, pieces=(1, 3)):
    """Texts of 0 to 9 pieces, and of words of one or two of these."""
    rng = np.random.default_rng(texts)
    levels, counts = {}, [rng.integers(*pieces, rng.integers(0, 6)) for _ in range(texts)]
    tokens = [[CLS, *rng.integers(200, 999, count.sum()), SEP] for count in counts]
    for level, units in (("token", tokens), ("word", counts)):
        own = [feature for feature in features if feature.level == level]
        flat = np.concatenate(units).astype(np.int32)
        columns = {"tokens": flat.astype(str).astype(object), "token_ids": flat}
        if level == "word":
            numbers = dict.fromkeys(("word_starts", "word_ends", "word_type_ids"), flat)
            columns = {"words": columns["tokens"], **numbers, "word_num_pieces": flat}
        values = {f.name: rng.normal(0, 2, (len(flat), f.width)).astype(f.dtype) for f in own}
        if own:
            levels[level] = Rows(splits_of([len(each) for each in units]), columns, values)
    return FeatureBatch(np.arange(texts) * 10 if ids is None else ids, {}, levels)


def write_source(path, batch, features=FEATURES, format="npz", id_type="int", **facts):
    metadata = metadata_of(*features, **facts)
    with open_writer(
        path, format=format, features=features, metadata=metadata, id_type=id_type
    ) as file:
        for start in range(0, len(batch), 150):
            file.write(batch.part(start, min(start + 150, len(batch))))
    return path


def write_source_folder(folder):
    batch = make_source()
    folder.mkdir()
    recipe = make_recipe(*FEATURES)
    manifest = replace(make_manifest(folder, "parquet", [100, TEXTS - 100]), recipe=recipe)
    for shard, part in enumerate((batch.part(0, 100), batch.part(100, TEXTS))):
        write_source(manifest.path(shard), part, format="parquet")
    finish(manifest)
    return folder


@pytest.fixture
def source(tmp_path):
    return write_source(tmp_path / "source.npz", make_source())


def expected(batch, *, special_tokens=True, seed=SEED, level="token"):
    """The rows in their order, by plain NumPy: name -> values."""
    units = batch.levels[level]
    lengths = np.diff(units.splits)
    rows = {"id": np.repeat(batch.unique_ids, lengths), **units.features}
    rows["position"] = np.concatenate([np.arange(n) for n in lengths])[:, None]
    column, name = {
        "token": ("token_ids", "token_id"),
        "word": ("word_num_pieces", "num_pieces"),
    }[level]
    rows[name] = units.columns[column][:, None]
    if not special_tokens:
        own = ~np.isin(units.columns["token_ids"], [CLS, SEP])
        rows = {name: values[own] for name, values in rows.items()}
    order = np.argsort(np.random.PCG64(seed).random_raw(len(rows["id"])), kind="stable")
    return {name: values[order] for name, values in rows.items()}


def assert_rows(store, rows):
    """The ids of the rows are `id` in the expected ones."""
    assert [f.name for f in store.features] == ["position", *(n for n in store_names(rows))]
    for name, values in rows.items():
        actual = store.ids if name == "id" else store.ragged(name)[0]
        np.testing.assert_array_equal(actual, values)


def store_names(rows):
    numbers = [name for name in ("token_id", "num_pieces", "word_number") if name in rows]
    return [*numbers, *(n for n in rows if n not in ("id", "position", *numbers))]


@pytest.mark.parametrize("special_tokens", [True, False])
def test_the_order_is_that_of_the_keys_for_all_layers(source, tmp_path, special_tokens):
    store = shuffle_features(
        source,
        tmp_path / "store",
        seed=SEED,
        special_tokens=special_tokens,
        shard_rows=300,
    )
    rows = expected(make_source(), special_tokens=special_tokens)
    assert_rows(store, rows)
    assert store.features[2].describe() == "layer_output_0 float32 [5]"
    counts = [shard.records for shard in Manifest.read(store.path).shards]
    assert {*counts[:-1]} == {300}
    assert 0 < counts[-1] <= 300
    assert sum(counts) == len(rows["id"])
    order = {"seed": SEED, "level": "token", "special_tokens": special_tokens}
    assert (store.metadata["order"], Manifest.read(store.path).order) == (order, order)
    assert store.verify() == ()


@all_formats
def test_every_format_holds_rows(tmp_path, format):
    ids = np.array([f"é{i}" for i in range(60)], object)
    batch = make_source(texts=60, ids=ids)
    origin = "npz" if format == "jsonl" else format
    source = write_source(tmp_path / f"s{SUFFIX[origin]}", batch, format=origin, id_type="str")
    store = shuffle_features(source, tmp_path / "store", seed=SEED, shard_rows=99, format=format)
    assert store.format == format
    rows = expected(batch)
    if format == "jsonl":  # six decimals
        rows |= {f.name: store.ragged(f.name)[0] for f in FEATURES}
    assert_rows(store, rows)
    record = store[5]
    assert (record.unique_id, record.features["position"].shape) == (rows["id"][5], (1,))


def test_a_folder_is_a_source(tmp_path):
    batch = make_source()
    store = shuffle_features(
        write_source_folder(tmp_path / "source"), tmp_path / "store", seed=SEED
    )
    assert_rows(store, expected(batch))
    (origin,) = Manifest.read(store.path).inputs
    assert origin.path == str(tmp_path / "source" / "_manifest.json")
    assert read_status(store.path).changed_inputs == ()


def test_memory_does_not_change_the_bytes_and_is_bounded(source, tmp_path, monkeypatch):
    """With 1 MB a part has less than half of it; with more there is a single part."""
    wide = tuple(OutputSpec(f"l{i}", (i,), "none", 160, "float32", states=(i,)) for i in (0, 1))
    source = write_source(tmp_path / "wide.npz", make_source(wide), wide)
    sizes, read = [], shuffle._sorted

    def noting(source, paths):
        sizes.extend(path.stat().st_size for path in paths)
        return read(source, paths)

    monkeypatch.setattr(shuffle, "_sorted", noting)
    for name, buffer in (("large", 256), ("small", 1)):
        shuffle_features(source, tmp_path / name, seed=1, shard_rows=500, buffer_mb=buffer)
    one, *parts = sizes
    assert len(parts) == one * 2 // (1 << 20) + 1
    assert max(parts) < 0.6 * (1 << 20)
    assert shards_of(tmp_path / "large") == shards_of(tmp_path / "small")


def unevenness(texts):
    """How far the order of the rows' texts is from a random one, in standard deviations.

    By the correlation of their old and new ranks, and by the chi-square of how the rows of each
    tenth of the texts lie in each tenth of the rows.
    """
    new, old = np.arange(len(texts)), np.argsort(np.argsort(texts, kind="stable"))
    correlation = np.corrcoef(new, old)[0, 1] * len(new) ** 0.5
    tenths = np.histogram2d(new, old, bins=10)[0]
    fair = tenths.sum(axis=1, keepdims=True) * tenths.sum(axis=0) / len(new)
    chi_square = ((tenths - fair) ** 2 / fair).sum()
    return abs(correlation), abs(chi_square - 81) / (2 * 81) ** 0.5


def test_rows_of_a_text_may_be_anywhere(tmp_path):
    batch = make_source(texts=4000)
    source = write_source(tmp_path / "many.npz", batch)
    for seed in range(3):
        store = shuffle_features(source, tmp_path / "store", seed=seed, overwrite=True)
        assert max(unevenness(store.ids)) < 4
    # The same measures of a shuffle within blocks of a tenth, and of none.
    ids = np.repeat(batch.unique_ids, np.diff(batch.levels["token"].splits))
    local = np.concatenate([np.random.default_rng(0).permutation(p) for p in np.split(ids, [3000])])
    for order in (local, ids):
        assert min(unevenness(order)) > 20


def test_each_token_has_the_number_of_its_word(tmp_path):
    features = (*FEATURES, WORD)
    batch = make_source(features)
    # The second text of several words: a piece more than tokens, as of one that belongs to two.
    words = batch.levels["word"]
    odd = np.flatnonzero(np.diff(words.splits) > 1)[1]
    words.columns["word_num_pieces"][words.splits[odd]] += 1
    source = write_source(tmp_path / "s.parquet", batch, features, "parquet")
    numbers = []
    for text, ends in enumerate(zip(words.splits, words.splits[1:], strict=False)):
        pieces = words.columns["word_num_pieces"][slice(*ends)]
        own = [word for word, count in enumerate(pieces) for _ in range(count)]
        if text == odd:
            own = [-1] * (len(own) - 1)
        numbers += [-1, *own, -1]
    rows = expected(batch)
    order = np.argsort(np.random.PCG64(SEED).random_raw(len(numbers)), kind="stable")
    rows["word_number"] = np.array(numbers)[order][:, None]
    assert_rows(shuffle_features(source, tmp_path / "store", seed=SEED), rows)


def test_rows_may_be_words(tmp_path):
    features = (*FEATURES, WORD)
    source = write_source(tmp_path / "s.npz", make_source(features), features)
    store = shuffle_features(source, tmp_path / "store", seed=SEED, level="word")
    assert_rows(store, expected(make_source(features), level="word"))


def test_a_killed_run_leaves_no_store_and_the_next_makes_the_same(source, tmp_path, monkeypatch):
    """It is killed after its first part, when a shard is written, and at the renaming."""
    whole = shuffle_features(source, tmp_path / "whole", seed=1, shard_rows=500)
    for place, name in ((shuffle, "_sorted"), (shuffle, "describe_shard"), (shuffle, "replace")):
        child = os.fork()
        if not child:
            monkeypatch.setattr(place, name, lambda *_, **__: os._exit(9))
            shuffle_features(source, tmp_path / "store", seed=1, shard_rows=500)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert [path.name[:7] for path in tmp_path.glob(".store*")] == [".store."]
        with pytest.raises(OutputError, match="No such file"):
            read_features(f"{tmp_path}/store/")
    store = shuffle_features(source, tmp_path / "store", seed=1, shard_rows=500)
    assert shards_of(store.path) == shards_of(whole.path)
    assert not [*tmp_path.glob(".*")]


def test_a_failure_keeps_the_store_that_was_there(source, tmp_path, monkeypatch):
    store = shuffle_features(source, tmp_path / "store", seed=1)
    before = shards_of(store.path)
    with pytest.raises(OutputError, match="overwrite"):
        shuffle_features(source, tmp_path / "store", seed=2)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "_sorted", full)
        with pytest.raises(OutputError, match="No space"):
            shuffle_features(source, tmp_path / "store", seed=2, overwrite=True)
    assert shards_of(store.path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"source.npz", "store"}
    shuffle_features(source, tmp_path / "store", seed=2, overwrite=True)
    assert shards_of(store.path) != before


def test_rows_that_are_not_finite_are_counted(tmp_path):
    batch = make_source()
    batch.levels["token"].features["layer_output_1"][3:5, 1] = np.nan
    source = write_source(tmp_path / "s.npz", batch)
    store = shuffle_features(source, tmp_path / "store", seed=1, shard_rows=10_000)
    assert store.metadata["losses"]["non_finite"]["count"] == 2
    (entry,) = Manifest.read(store.path).finished
    assert entry.counts["non_finite_examples"] == 2


def test_the_command_writes_the_same_bytes(source, tmp_path):
    store = shuffle_features(source, tmp_path / "store", seed=3, special_tokens=False)
    shown = run("shuffle", source, tmp_path / "of_command", "--seed", 3, "--no-special-tokens")
    assert shown.stdout == f"wrote {len(store):,} rows to {tmp_path / 'of_command'}\n"
    assert shards_of(tmp_path / "of_command") == shards_of(store.path)
    refused = run("shuffle", source, "s3://bucket/store", "--seed", 3)
    assert (refused.exit_code, "s3://bucket/store is an address" in refused.stderr) == (1, True)


def test_other_commands_know_a_store(source, tmp_path):
    store = shuffle_features(source, tmp_path / "store", seed=1)
    assert [each.verdict for each in compare(store, source)] == ["same", "same"]
    status = read_status(store.path)
    assert (status.state, status.examples, status.is_whole) == ("finished", len(store), True)
    shown = run("status", store.path).stdout
    assert "order      shuffled: seed 1, level token, special_tokens True\n" in shown
    with pytest.raises(ConfigError, match="shuffled rows"):
        nearest(store, np.ones(5), feature="layer_output_0")
    with pytest.raises(ConfigError, match=re.escape(str(source))):
        repair(store.path)
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(ConfigError, match="begun by a run"):
        extract(ExtractConfig(checkpoint="minilm"), tmp_path / "in.txt", f"{store.path}/")
    assert list(store.to_pandas().columns) == ["unique_id", *(f.name for f in store.features)]
    assert store.to_dataset().element_spec["layer_output_0"].shape == [5]


@pytest.mark.parametrize(
    ("settings", "error", "named"),
    [
        ({"seed": 1.0}, ConfigError, "seed is 1.0"),
        ({"shard_rows": 0}, ConfigError, "shard_rows is 0"),
        ({"buffer_mb": 0}, ConfigError, "buffer_mb is 0"),
        ({"level": "word"}, OutputError, "has token features"),
        ({"folder": "."}, OutputError, "other files"),
        ({"shard_rows": 1}, OutputError, "shards"),
    ],
)
def test_what_cannot_be_followed_is_refused(source, tmp_path, monkeypatch, settings, error, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shuffle, "MAX_COUNT", 100)
    with pytest.raises(error, match=named):
        shuffle_features(source, **({"folder": "store", "seed": 1} | settings))
    assert [path.name for path in Path().iterdir()] == ["source.npz"]


def test_sources_without_rows_are_refused(tmp_path):
    batch = make_source(pieces=(0, 1))
    source = write_source(tmp_path / "empty.npz", batch)
    with pytest.raises(OutputError, match="0 rows"):
        shuffle_features(source, tmp_path / "store", seed=1, special_tokens=False)
    lines = write_source(tmp_path / "s.jsonl", make_source(), format="jsonl")
    with pytest.raises(OutputError, match="jsonl"):
        shuffle_features(lines, tmp_path / "store", seed=1)
    # Behind [SEP] queries may have [MASK], so the last token of a text is not its last special one.
    queries = write_source(tmp_path / "q.npz", make_source(), texts={"task": "query"})
    with pytest.raises(OutputError, match="has queries of late interaction"):
        shuffle_features(queries, tmp_path / "store", seed=1, special_tokens=False)
    taken = (OutputSpec("position", (-1,), "none", 2, "float32", states=(3,)),)
    other = write_source(tmp_path / "taken.npz", make_source(taken), taken)
    with pytest.raises(OutputError, match="'position'"):
        shuffle_features(other, tmp_path / "store", seed=1)
    store = shuffle_features(
        write_source(tmp_path / "s.npz", make_source()), tmp_path / "s", seed=1
    )
    with pytest.raises(OutputError, match="is shuffled already"):
        shuffle_features(store.path, tmp_path / "store", seed=1)
    folder = write_source_folder(tmp_path / "folder")
    with pytest.raises(OutputError, match="holds the source"):
        shuffle_features(folder, folder, seed=1, overwrite=True)
