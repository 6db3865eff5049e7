"""CKA of two features files, beside its definition in float64 NumPy; what is refused."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from bert_features import shuffle_features
from bert_features.config.features import OutputSpec
from bert_features.errors import InputError
from bert_features.formats import open_writer
from bert_features.formats.records import FeatureBatch
from bert_features.plots import cka
from bert_features.plots.cka import compare_layers
from tests.corpus.test_shuffle import FEATURES, WORD, make_source, write_source
from tests.recipes import metadata_of

# Layers of 4 and 6 values, and of 5 and 3.
OTHERS = tuple(
    OutputSpec(f"layer_output_{i}", (layer,), "none", 4 + 2 * i, "float32", states=(3,))
    for i, layer in enumerate(("embeddings", 2))
)
SENTENCES = (OutputSpec("features", (-1,), "none", 5, "float32", "sequence", "mean", states=(3,)),)


def centred(x):
    """The U-centred kernel of Szekely and Rizzo 2014, [N, N], whose rows add up to 0."""
    n, kernel = len(x), x @ x.T
    np.fill_diagonal(kernel, 0)
    sums = kernel.sum(0)
    kernel += sums.sum() / ((n - 1) * (n - 2)) - (sums + sums[:, None]) / (n - 2)
    np.fill_diagonal(kernel, 0)
    return kernel


def defined(x, y):
    x, y = (centred(each.astype(np.result_type(each, np.float64))) for each in (x, y))
    return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())


def related(batch, features, mean=0.0):
    """The same texts with layers of other widths that depend on the first."""
    units = batch.levels["token"]
    rng, x = np.random.default_rng(1), units.features["layer_output_0"]
    values = {}
    for f in features:
        noise = rng.normal(0, 2, (len(x), f.width))
        values[f.name] = (mean + x @ rng.normal(size=(5, f.width)) + noise).astype(f.dtype)
    return replace(batch, levels={"token": replace(units, features=values)})


@pytest.fixture
def batch():
    return make_source()


@pytest.fixture
def first(tmp_path, batch):
    return write_source(tmp_path / "a.npz", batch)


@pytest.fixture
def second(tmp_path, batch):
    return write_source(tmp_path / "b.parquet", related(batch, OTHERS, 30.0), OTHERS, "parquet")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_each_layer_with_each_is_as_defined(first, second, batch, monkeypatch, limit):
    """In blocks of 64 rows with a pass for each layer, and at once."""
    monkeypatch.setattr(cka, "_BLOCK_BYTES", limit)
    monkeypatch.setattr(cka, "_SUM_BYTES", limit)
    found = compare_layers(first, second)
    xs = list(batch.levels["token"].features.values())
    ys = list(related(batch, OTHERS, 30.0).levels["token"].features.values())
    want = [[defined(x, y) for y in ys] for x in xs]
    np.testing.assert_allclose(found.values[0], want, rtol=0, atol=1e-9)
    assert 0.2 < found.values[0, 0].min() < found.values[0, 0].max() < 0.95
    assert found.layers == (["-1", "-2"], ["embeddings", "2"])
    assert found.rows == f"{len(xs[0]):,} tokens"

    # The null has these rows of the second file.
    random, texts = np.random.default_rng(0), batch.levels["token"].splits
    bounds = np.linspace(0, 400, 257).astype(int)
    parts = [np.arange(*texts[bounds[i : i + 2]]) for i in random.permutation(256)]
    rows, size = np.concatenate(parts), 64 if limit == 0 else len(xs[0])
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        rows[start : start + size] = block[random.permutation(len(block))]
    assert sorted(rows) == list(range(len(xs[0])))
    want = [[defined(x, y[rows]) for y in ys] for x in xs]
    np.testing.assert_allclose(found.values[1], want, rtol=0, atol=1e-9)
    assert np.abs(found.values[1]).max() < 0.01


def test_turns_and_scales_change_nothing_and_the_null_is_near_0_where_texts_differ(tmp_path):
    """The first half of the texts is far from the second, and each has a place of its own."""
    batch = make_source(FEATURES[:1])
    units = batch.levels["token"]
    rng, lengths = np.random.default_rng(2), np.diff(units.splits)
    places = rng.normal(0, 3, (400, 5)) + np.where(np.arange(400) < 200, 5, -5)[:, None]
    x = np.repeat(places, lengths, axis=0) + rng.normal(size=(lengths.sum(), 5))
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    for name, values in (("a.npz", x), ("b.npz", 7 * x @ turn + 3)):
        values = {"layer_output_0": values.astype("f")}
        rows = {"token": replace(units, features=values)}
        write_source(tmp_path / name, replace(batch, levels=rows), FEATURES[:1])
    value, null = compare_layers(tmp_path / "a.npz", tmp_path / "b.npz").values[:, 0, 0]
    assert value == pytest.approx(1, abs=1e-6)
    assert abs(null) < 0.02


def test_shuffled_stores_of_one_seed(tmp_path, batch, first, second):
    a, b, other = (tmp_path / name for name in "abc")
    shuffle_features(first, a, seed=3)
    shuffle_features(second, b, seed=3)
    shuffle_features(second, other, seed=4)
    found, rows = compare_layers(first, second), compare_layers(a, b)
    np.testing.assert_allclose(rows.values[0], found.values[0], rtol=0, atol=1e-9)
    assert rows.rows == found.rows.replace("token", "row")
    with pytest.raises(InputError, match="shuffle both with the same seed"):
        compare_layers(a, other)
    # Of the same texts, one store has the numbers of words beside.
    words = (*FEATURES, WORD)
    levels = make_source(words).levels | batch.levels
    source = write_source(tmp_path / "words.npz", replace(batch, levels=levels), words)
    shuffle_features(source, tmp_path / "w", seed=3)
    np.testing.assert_array_equal(compare_layers(tmp_path / "w", b).values, rows.values)


@pytest.mark.parametrize("far", [0, 9])
def test_a_row_that_is_far_from_all_costs_no_digits(tmp_path, batch, far):
    """Squares of its distance cancel, and they are in each sum if the rows are shifted by it."""
    units = batch.levels["token"]
    rows = units.features["layer_output_0"].copy()
    rows[far] += 1e4
    values = dict(zip(units.features, (rows, rows[:, :3].astype("f2")), strict=True))
    moved = replace(batch, levels={"token": replace(units, features=values)})
    path = write_source(tmp_path / "far.npz", moved)
    found = compare_layers(path, path).values[0]
    x, y = (each.astype(np.longdouble) for each in values.values())
    assert found[0, 1] == pytest.approx(float(defined(x, y)), abs=1e-6)


def changed(batch, what):
    units = batch.levels["token"]
    if what == "ids":
        return replace(batch, unique_ids=batch.unique_ids + 1)
    if what == "order":
        return batch.take(np.arange(len(batch))[::-1])
    if what == "more":
        return batch.take(np.append(np.arange(len(batch)), 3))
    if what == "tokens":
        tokens = units.columns["tokens"].copy()
        tokens[-2] = "other"
        units = replace(units, columns=units.columns | {"tokens": tokens})
        return replace(batch, levels={"token": units})
    values = units.features["layer_output_1"].copy()
    values[:] = values[0]
    values[5] += {"constant": 0, "one": 1, "nan": np.nan, "inf": np.inf}[what]
    return batch.with_features({"layer_output_1": values})


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("ids", "rows of different ids, positions, tokens or words; extract both"),
        ("order", "rows of different ids"),
        ("more", "rows of different ids"),
        ("tokens", "rows of different ids"),
        ("nan", "layer_output_1 of .* has values that are not finite"),
        ("inf", "layer_output_1 of .* has values that are not finite"),
        ("constant", "layer_output_1 of .* has the same vector in each row"),
        ("one", "layer_output_1 of .* has the same vector in each row, or in all but one"),
    ],
)
def test_other_rows_and_layers_without_cka_are_refused(tmp_path, first, batch, what, message):
    other = write_source(tmp_path / "c.npz", changed(batch, what))
    for pair in ((first, other), (other, first)):
        with pytest.raises(InputError, match=message):
            compare_layers(*pair)


def test_few_rows_and_other_levels_are_refused(tmp_path, first, batch):
    empty = np.flatnonzero(np.diff(batch.levels["token"].splits) == 2)[:1]  # [CLS] and [SEP]
    few = write_source(tmp_path / "few.npz", batch.take(empty))
    with pytest.raises(InputError, match="has 2 rows; CKA needs at least 4"):
        compare_layers(few, few)
    texts = write_texts(tmp_path / "t.npz", "0" * 8)
    with pytest.raises(InputError, match="have token and sequence vectors"):
        compare_layers(first, texts)


def write_texts(path, checksum):
    vectors = np.random.default_rng(3).normal(size=(400, 5)).astype("f")
    with open_writer(
        path, format="npz", features=SENTENCES, metadata=metadata_of(*SENTENCES), id_type="int"
    ) as file:
        file.write(FeatureBatch(np.arange(400), {"features": vectors}))
        file.texts_crc32c = checksum
    return path


def test_vectors_of_texts_are_joined_by_the_checksum_of_the_texts(tmp_path):
    checksums = {"a": "0" * 8, "b": "0" * 8, "other": "1" * 8, "none": None}
    paths = {n: write_texts(tmp_path / f"{n}.npz", crc) for n, crc in checksums.items()}
    found = compare_layers(paths["a"], paths["b"])
    assert (found.rows, found.values[0, 0, 0]) == ("400 texts", pytest.approx(1, abs=1e-12))
    for pair in (("a", "other"), ("none", "none")):
        with pytest.raises(InputError, match="lack the same checksums of texts"):
            compare_layers(*map(paths.get, pair))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(cka, "_BLOCK_BYTES", 1 << 18)
    peaks = []
    for texts in (3_000, 20_000):
        batch = make_source(texts=texts)
        path = write_source(tmp_path / f"{texts}.npz", batch)
        tracemalloc.start()
        compare_layers(path, path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
