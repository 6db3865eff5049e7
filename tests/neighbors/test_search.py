"""The search: the ranking of float64 brute force, whatever the blocks, the type and the ties."""

import numpy as np
import pytest

from bert_features.errors import ConfigError
from bert_features.formats.columns import value_dtype
from bert_features.formats.records import Feature
from bert_features.neighbors import search as search_module
from bert_features.neighbors.search import HammingSearch, Search

WIDTH = 70  # nine bytes, the last one not full
RNG = np.random.default_rng(3)
VECTORS = RNG.normal(size=(600, WIDTH))
VECTORS[100:130] = VECTORS[7]  # equal ones
BITS = Feature("bits", (-1,), "none", WIDTH, "binary", "sequence", "mean")
QUERIES = np.concatenate([RNG.normal(size=(3, WIDTH)), VECTORS[[7, 500]]])


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
        part = vectors[start : start + block]
        records = np.arange(start, start + len(part))
        search.add(part, records, np.zeros(len(part), np.int64))
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
    for hits, query in zip(found, queries, strict=True):
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"similarity": "l2"}, "similarity is 'l2'; allowed: 'cosine', 'dot'"),
        ({"queries": np.zeros((1, 4))}, "query 0 is zero"),
        ({"queries": np.full((1, 4), np.nan)}, "query 0 is not finite"),
    ],
)
def test_wrong_arguments(changes, message):
    arguments = {"queries": np.ones((1, 4)), "top": 3} | changes
    with pytest.raises(ConfigError, match=message):
        Search(arguments.pop("queries"), **arguments)


def plain(query, top, candidates, similarity):
    """Rows and similarities, by loops over single vectors."""
    rows = range(len(VECTORS))
    distances = [
        sum((v > 0) != (q > 0) for v, q in zip(VECTORS[r], query, strict=True)) for r in rows
    ]
    nearest = sorted(rows, key=lambda row: (distances[row], row))[:candidates]
    signs = {row: np.where(VECTORS[row] > 0, 1.0, -1.0) for row in nearest}
    length = np.linalg.norm(query) * WIDTH**0.5 if similarity == "cosine" else 1
    found = {row: float(signs[row] @ query) / length for row in nearest}
    ranked = sorted(found, key=lambda row: (-round(found[row], 12), row))[:top]
    return ranked, [found[row] for row in ranked]


def search(queries, *, similarity="cosine", **options):
    found = HammingSearch(queries, BITS, similarity=similarity, **options)
    bits = np.packbits(VECTORS > 0, axis=1)
    for start in range(0, len(bits), 90):
        part = slice(start, start + 90)
        rows = np.arange(len(bits))[part]
        found.add(bits[part], rows // 3, rows % 3)
    assert found.counts == {"compared": len(bits)}
    return found.hits()


@pytest.mark.parametrize("candidates", [40, 1000])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("counted_by", ["numpy 2", "numpy 1"])
def test_it_finds_what_loops_find(monkeypatch, candidates, similarity, counted_by):
    monkeypatch.setattr(search_module, "_CANDIDATES", candidates)
    if counted_by == "numpy 1":
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    for query, hits in zip(QUERIES, search(QUERIES, top=35, similarity=similarity), strict=True):
        rows, similarities = plain(query, 35, candidates, similarity)
        assert (hits.records * 3 + hits.positions).tolist() == rows
        np.testing.assert_allclose(hits.similarities, similarities, rtol=1e-12)


def test_few_candidates_are_at_least_those_wanted(monkeypatch):
    monkeypatch.setattr(search_module, "_CANDIDATES", 1)
    (hits,) = search(QUERIES[:1], top=5)
    assert len(hits.records) == 5


def test_nothing_to_find():
    (hits,) = HammingSearch(QUERIES[:1], BITS, top=5, similarity="dot").hits()
    assert len(hits.records) == 0


def test_a_query_without_a_direction_is_refused():
    with pytest.raises(ConfigError, match="the vector of query 1 is zero"):
        search(np.stack([QUERIES[0], np.zeros(WIDTH)]), top=1)
