"""HammingSearch: candidates by bits that differ, ranked by float queries; against plain loops."""

import numpy as np
import pytest

from bert_features.errors import ConfigError
from bert_features.formats.records import Feature
from bert_features.neighbors import hamming
from bert_features.neighbors.hamming import HammingSearch

WIDTH = 70  # nine bytes, the last one not full
RNG = np.random.default_rng(3)
VECTORS = RNG.normal(size=(600, WIDTH))
VECTORS[100:130] = VECTORS[7]  # equal ones
BITS = Feature("bits", (-1,), "none", WIDTH, "binary", "sequence", "mean")
QUERIES = np.concatenate([RNG.normal(size=(3, WIDTH)), VECTORS[[7, 500]]])


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
    monkeypatch.setattr(hamming, "_CANDIDATES", candidates)
    if counted_by == "numpy 1":
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    for query, hits in zip(QUERIES, search(QUERIES, top=35, similarity=similarity), strict=True):
        rows, similarities = plain(query, 35, candidates, similarity)
        assert (hits.records * 3 + hits.positions).tolist() == rows
        np.testing.assert_allclose(hits.similarities, similarities, rtol=1e-12)


def test_few_candidates_are_at_least_those_wanted(monkeypatch):
    monkeypatch.setattr(hamming, "_CANDIDATES", 1)
    (hits,) = search(QUERIES[:1], top=5)
    assert len(hits.records) == 5


def test_nothing_to_find():
    (hits,) = HammingSearch(QUERIES[:1], BITS, top=5, similarity="dot").hits()
    assert len(hits.records) == 0


def test_a_query_without_a_direction_is_refused():
    with pytest.raises(ConfigError, match="the vector of query 1 is zero"):
        search(np.stack([QUERIES[0], np.zeros(WIDTH)]), top=1)
