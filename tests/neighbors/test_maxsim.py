"""MaxSim: the ranking of float64 brute force; and neighbors of queries in a file."""

import itertools
import json

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, extract, nearest
from bert_features.errors import ConfigError
from bert_features.neighbors import maxsim
from bert_features.neighbors.maxsim import MaxSimSearch, Query
from tests.cli.command_line import run
from tests.multi_vector import KIND, TEXTS, scores, write
from tests.reference.late_interaction import max_sim

RNG = np.random.default_rng(5)
LENGTHS = RNG.integers(0, 9, 60)
SPLITS = np.concatenate([[0], np.cumsum(LENGTHS)])
VECTORS = RNG.normal(size=(SPLITS[-1], 6)).astype(np.float32)
# Queries of one vector and of several.
QUERIES = [RNG.normal(size=(count, 6)) for count in (1, 4, 7)]


def texts(vectors=VECTORS):
    return [vectors[a:b].astype(np.float64) for a, b in itertools.pairwise(SPLITS)]


def search(vectors=VECTORS, block=11, **options):
    found = MaxSimSearch(list(map(Query.of_vectors, QUERIES)), **options)
    for first in range(0, len(LENGTHS), block):
        splits = SPLITS[first : first + block + 1]
        found.add(vectors[splits[0] : splits[-1]], splits, first)
    return found


@pytest.mark.parametrize("most", [1, 50, 1 << 22], ids=["a text", "some", "the block"])
def test_the_nearest_texts_are_those_of_brute_force(monkeypatch, most):
    """Whatever is compared at a time; equal texts are in the order of the file."""
    monkeypatch.setattr(maxsim, "_MAX_PRODUCTS", most)
    vectors = VECTORS.copy()
    same = [i for i, n in enumerate(LENGTHS) if n == LENGTHS[7]]
    for i in same:
        vectors[SPLITS[i] : SPLITS[i + 1]] = vectors[SPLITS[7] : SPLITS[8]]
    for query, hits in zip(QUERIES, search(vectors, top=9).hits(), strict=True):
        wanted = np.array([max_sim(query, t) if len(t) else -np.inf for t in texts(vectors)])
        order = np.argsort(-wanted, kind="stable")[:9]
        assert hits.records.tolist() == order.tolist()
        np.testing.assert_allclose(hits.similarities, wanted[order], rtol=1e-12)
    (mean, *_) = search(vectors, top=1, mean=True).hits()[1:]
    assert mean.similarities[0] * 4 == pytest.approx(
        search(vectors, top=1).hits()[1].similarities[0]
    )


def test_float32_does_not_decide_between_near_ties():
    """Texts whose exact sums differ by less than what products in float32 lose.

    Which of them float32 ranks first depends on the CPU: so there are 20 searches, not one.
    """
    rng = np.random.default_rng(11)
    for _ in range(20):
        vectors = (rng.normal(size=64) + rng.normal(size=(200, 64)) * 1e-8).astype(np.float32)
        query = rng.normal(size=(3, 64))
        found = MaxSimSearch([Query.of_vectors(query)], top=1)
        found.add(vectors, np.arange(201), 0)
        (hits,) = found.hits()
        exact = [max_sim(query, vector[None].astype(np.float64)) for vector in vectors]
        assert hits.records.tolist() == [np.argmax(exact)]


def test_texts_that_cannot_be_compared_are_left_out_and_counted():
    """NaN and infinity; and values whose squares float32 cannot hold are compared."""
    vectors = VECTORS.copy()
    first, second, third = np.flatnonzero(LENGTHS > 1)[:3]
    vectors[SPLITS[first]] = np.nan
    vectors[SPLITS[second] + 1, 2] = -np.inf
    vectors[SPLITS[third]] = 1e30
    found = search(vectors, top=len(LENGTHS))
    for query, hits in zip(QUERIES, found.hits(), strict=True):
        assert not {first, second} & {*hits.records.tolist()}
        place = hits.records.tolist().index(third)
        wanted = max_sim(query, texts(vectors)[third])
        np.testing.assert_allclose(hits.similarities[place], wanted, rtol=1e-12)
    empty = int((LENGTHS == 0).sum())
    counts = {"compared": len(LENGTHS) - empty - 2, "not_finite": 2, "zero": empty}
    assert dict(found.counts) == counts
    with pytest.raises(ConfigError, match="query 0 has no vector"):
        MaxSimSearch([Query.of_vectors(np.zeros((0, 6)))], top=1)


@pytest.mark.parametrize("name", ["classic", "plain"])
def test_queries_find_documents_as_in_sentence_transformers(tmp_path, name, kept_steps):
    """`plain` records the mean of the products. A match says which token it was."""
    folder = write(name, tmp_path / "in")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = ExtractConfig(checkpoint=str(folder), **KIND)
    extract(settings, tmp_path / "in.txt", path := tmp_path / "out.npz")
    found = nearest(path, TEXTS, top=len(TEXTS))
    for wanted, hits in zip(scores(name), found, strict=True):
        got = np.zeros(len(TEXTS))
        got[[hit.record for hit in hits]] = [hit.similarity for hit in hits]
        np.testing.assert_allclose(got, wanted, atol=1e-4)
    (hit,) = nearest(path, "boat", top=1)
    own = [match for match in hit.matches if match.query_token == "boat"]
    assert max(own, key=lambda match: match.similarity).position == hit.position
    assert hit.token == own[0].token == hit.tokens[hit.position]
    if name == "plain":
        return
    total = sum(match.similarity for match in hit.matches)
    assert total == pytest.approx(hit.similarity)
    extractor = FeatureExtractor.from_checkpoint(folder, **KIND)
    vectors = extractor.encode_query("boat")
    assert nearest(path, vectors, top=1)[0].similarity == pytest.approx(hit.similarity)
    line = run("neighbors", path, "--query", "boat", "--top", 1, "--format", "jsonl").stdout
    assert json.loads(line)["matches"][2] == hit.matches[2]._asdict()
    for option in ({"token": "boat"}, {"similarity": "dot"}):
        with pytest.raises(ConfigError, match=f"{next(iter(option))} is .* leave .* out"):
            nearest(path, "boat", **option)
    with pytest.raises(ConfigError, match=r"queries have shape \[8\]"):
        nearest(path, vectors[0])
