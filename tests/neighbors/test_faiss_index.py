"""The faiss index: its recall, that it is kept, and what it leaves out."""

import sys

import numpy as np
import pytest

from bert_features import nearest
from bert_features.errors import CheckpointError, ConfigError, MissingExtraError
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.neighbors import faiss_index
from tests.formats.feature_files import EVERYTHING, make_batch, some_batches, write

# The extension modules of faiss and of NumPy's older interface, made by SWIG.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute")
TEXT = Feature("text", (-1,), "none", 16, "float32", "sequence", "mean")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "neighbors"


def clustered(count=4000):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(50, 16))
    return (centers[rng.integers(0, 50, count)] + 0.4 * rng.normal(size=(count, 16))).astype("f4")


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_it_finds_most_of_the_nearest(tmp_path, cache, similarity, monkeypatch):
    monkeypatch.setattr(faiss_index, "CELLS_SEARCHED", 8)  # of 102
    vectors = clustered()
    batch = FeatureBatch(np.arange(len(vectors)), {"text": vectors})
    write(tmp_path / "f.npz", "npz", (TEXT,), batch)
    queries = vectors[::97] + 0.1
    exact = nearest(tmp_path / "f.npz", queries, similarity=similarity)
    found = nearest(tmp_path / "f.npz", queries, similarity=similarity, index="faiss")
    pairs = list(zip(exact, found, strict=True))
    hits = [len({h.record for h in one} & {h.record for h in other}) for one, other in pairs]
    assert np.mean(hits) / 10 > 0.9
    for one, other in pairs:
        similarities = {hit.record: hit.similarity for hit in one}
        for hit in other:
            if hit.record in similarities:
                assert hit.similarity == pytest.approx(similarities[hit.record], rel=1e-5)


def test_it_is_built_once_and_anew_when_the_file_changes(tmp_path, cache):
    def records():
        return [hit.record for hit in nearest(path, np.eye(16)[0], index="faiss", top=1)]

    path = tmp_path / "f.npz"
    vectors = clustered(100)
    vectors[7] = 5 * np.eye(16)[0]
    write(path, "npz", (TEXT,), FeatureBatch(np.arange(100), {"text": vectors}))
    assert records() == [7]
    (index,) = cache.glob("*.faiss")
    built = index.stat().st_mtime_ns
    assert records() == [7]
    assert index.stat().st_mtime_ns == built
    path.unlink()
    write(path, "npz", (TEXT,), FeatureBatch(np.arange(99), {"text": vectors[1:]}))
    assert records() == [6]
    assert len(list(cache.glob("*.faiss"))) == 2


def test_it_finds_tokens_and_leaves_out_zero_vectors(tmp_path, cache):
    feature = next(feature for feature in EVERYTHING if feature.level == "token")
    write(tmp_path / "f.parquet", "parquet", EVERYTHING, *some_batches(EVERYTHING))
    query = np.ones(feature.width)
    arguments = {"feature": feature.name, "top": 99}
    found = nearest(tmp_path / "f.parquet", query, **arguments, index="faiss")
    exact = nearest(tmp_path / "f.parquet", query, **arguments)
    assert [(h.record, h.position, h.token) for h in found] == [
        (h.record, h.position, h.token) for h in exact
    ]
    batch = make_batch((TEXT,), [1, 1, 1])
    batch.features["text"][1:] = [[0] * 16, [np.nan] * 16]
    write(tmp_path / "zero.arrow", "arrow", (TEXT,), batch)
    (hit,) = nearest(tmp_path / "zero.arrow", np.ones(16), index="faiss")
    assert hit.record == 0


def test_a_small_file_gives_no_warning(tmp_path, cache, capfd):
    write(tmp_path / "f.npz", "npz", (TEXT,), make_batch((TEXT,), [1, 1]))
    assert len(nearest(tmp_path / "f.npz", np.ones(16), index="faiss")) == 2
    assert capfd.readouterr() == ("", "")


def test_wrong_arguments(tmp_path, cache, monkeypatch):
    write(tmp_path / "f.npz", "npz", (TEXT,), make_batch((TEXT,), [1, 1]))
    with pytest.raises(ConfigError, match="index is 'annoy'; allowed: 'faiss'"):
        nearest(tmp_path / "f.npz", np.ones(16), index="annoy")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"faiss-cpu is not installed\..*\[faiss\]"):
        nearest(tmp_path / "f.npz", np.ones(16), index="faiss")


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "file" / "cache"))
    batch = FeatureBatch(np.arange(100), {"text": clustered(100)})
    write(tmp_path / "f.npz", "npz", (TEXT,), batch)
    with pytest.raises(CheckpointError, match=r"^cannot write .*; set BERT_FEATURES_CACHE to a fo"):
        nearest(tmp_path / "f.npz", np.eye(16)[0], index="faiss")
