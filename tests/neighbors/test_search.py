"""The search: the ranking of float64 brute force, whatever the blocks, the type and the ties."""

import numpy as np
import pytest

from bert_features.formats.columns import value_dtype
from bert_features.neighbors import search as search_module
from bert_features.neighbors.search import Search


def brute_force(vectors, query, similarity):
    """float64 similarities with each vector; NaN for vectors that cannot be compared."""
    wide = np.asarray(vectors, np.float64)
    scale = np.linalg.norm(wide, axis=1) * np.linalg.norm(query)
    usable = np.isfinite(wide).all(axis=1) & wide.any(axis=1)
    with np.errstate(all="ignore"):
        products = wide @ query
        values = products / scale if similarity == "cosine" else products
    return np.where(usable, values, np.nan)


def find(vectors, queries, *, top, similarity="cosine", block=7):
    search = Search(queries, top=top, similarity=similarity)
    for start in range(0, len(vectors), block):
        search.add(vectors[start : start + block], start)
    return search


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_it_is_the_ranking_of_float64(similarity, dtype, block):
    rng = np.random.default_rng(block)
    vectors = (rng.normal(size=(500, 24)) * rng.uniform(0.1, 30, (500, 1))).astype(
        value_dtype(dtype)
    )
    queries = rng.normal(size=(3, 24))
    found = find(vectors, queries, top=12, similarity=similarity, block=block).hits()
    found += find(vectors, queries[:1], top=12, similarity=similarity, block=block).hits()
    for hits, query in zip(found, [*queries, queries[0]], strict=True):
        expected = brute_force(vectors, query, similarity)
        order = np.lexsort((np.arange(500), -expected))[:12]
        assert hits.records.tolist() == order.tolist()
        np.testing.assert_allclose(hits.similarities, expected[order], rtol=1e-12)


def test_equal_vectors_come_in_their_order():
    """Also at the border of the top, and where BLAS rounds the rows of a block in several ways."""
    rng = np.random.default_rng(0)
    one, far = rng.normal(size=(2, 383)).astype(np.float32)
    vectors = np.stack([one if i % 3 else far for i in range(300)])
    (hits,) = find(vectors, one[None] + 0.1, top=50, block=71).hits()
    assert hits.records.tolist() == [i for i in range(300) if i % 3][:50]
    assert len(set(hits.similarities.tolist())) == 1


def test_differences_below_float32_decide():
    base = np.zeros((4, 8), np.float32)
    base[:, 0] = 1.0
    base[:, 1] = np.array([3, 1, 2, 0], np.float32) * 1e-6  # cosines differ by 1e-12
    (hits,) = find(base, np.eye(8)[:1], top=4).hits()
    assert hits.records.tolist() == [3, 1, 2, 0]
    assert len(set(hits.similarities.tolist())) == 4


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_zero_and_non_finite_vectors_are_left_out_and_counted(similarity):
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    vectors[[0, 7]] = 0
    vectors[8, 2], vectors[9, 0], vectors[39] = np.nan, np.inf, -np.inf
    query = -vectors[1:2].astype(np.float64)
    search = find(vectors, query, top=100, similarity=similarity)
    (hits,) = search.hits()
    assert sorted(hits.records.tolist()) == sorted(set(range(40)) - {0, 7, 8, 9, 39})
    assert search.counts == {"compared": 35, "zero": 2, "not_finite": 3}
    assert np.isfinite(hits.similarities).all()


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_values_at_the_ends_of_float32(similarity):
    """Their squares overflow or vanish in float32."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(60, 5)).astype(np.float32)
    vectors[::3] *= 1e37
    vectors[1::3] *= 1e-37
    query = rng.normal(size=5)
    (hits,) = find(vectors, query[None], top=60, similarity=similarity).hits()
    expected = brute_force(vectors, query, similarity)
    assert hits.records.tolist() == np.argsort(-expected, kind="stable").tolist()


def test_large_blocks_are_compared_in_parts(monkeypatch):
    rng = np.random.default_rng(4)
    vectors, query = rng.normal(size=(100, 10)).astype(np.float32), rng.normal(size=(1, 10))
    (whole,) = find(vectors, query, top=9, block=100).hits()
    monkeypatch.setattr(search_module, "_MAX_VALUES", 35)
    (parts,) = find(vectors, query, top=9, block=100).hits()
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
