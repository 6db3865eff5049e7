"""The texts nearest to a query by late interaction: MaxSim, exact, a block of texts at a time.

MaxSim is the sum, over the vectors of a query, of the largest product with a vector of the text
(Khattab and Zaharia 2020, arXiv:2004.12832). As in `search`, float32 finds what may be among the
nearest, and float64 decides.

Dimensions: `N` texts of a block, `V` their vectors, `Q` vectors of a query, `D` width.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_features.errors import ConfigError
from bert_features.neighbors.search import NO_HITS, Hits, check_top

# Products of the largest array that the comparison of a block makes, unless one text has more.
_MAX_PRODUCTS = 1 << 22


class Query(NamedTuple):
    """A query for late interaction.

    Attributes:
      vectors: float64 [Q, D].
      tokens: the token of each; empty if they are unknown.
      own: bool [Q], the tokens of the user's text: no special token, marker or filling.
    """

    vectors: np.ndarray
    tokens: tuple[str, ...]
    own: np.ndarray

    @classmethod
    def of_vectors(cls, vectors: np.ndarray) -> "Query":
        """A query whose tokens are unknown, [Q, D]."""
        return cls(np.asarray(vectors, np.float64), (), np.ones(len(vectors), bool))


class Match(NamedTuple):
    """The best vector of a text for one token of the query.

    Attributes:
      query_token: that token; empty if it is unknown.
      position: which vector of the text.
      token: the token that the vector belongs to.
      similarity: their product.
    """

    query_token: str
    position: int
    token: str
    similarity: float


class MaxSimSearch:
    """Finds the texts nearest to some queries among blocks of texts, `top` for each query.

    With `mean` a similarity is divided by the number of vectors of the query.

    Attributes:
      counts: the texts so far: `compared`; and left out, because they have no vector (`zero`), or
        one with NaN or infinity (`not_finite`).

    Raises:
      ConfigError: `top` is below 1, or a query has no vector or one that is not finite.
    """

    def __init__(self, queries: Sequence[Query], *, top: int, mean: bool = False) -> None:
        check_top(top)
        for number, query in enumerate(queries):
            if not len(query.vectors) or not np.isfinite(query.vectors).all():
                raise ConfigError(
                    f"query {number} has no vector, or one that is not finite; leave it out"
                )
        self._queries = [query.vectors for query in queries]
        self._top, self._mean = top, mean
        self._hits = [NO_HITS for _ in queries]
        self.counts = Counter[str]()

    def hits(self) -> list[Hits]:
        """The nearest texts of each query."""
        pairs = zip(self._hits, self._queries, strict=True)
        return [
            hits._replace(similarities=hits.similarities / (len(query) if self._mean else 1))
            for hits, query in pairs
        ]

    def add(self, vectors: np.ndarray, splits: np.ndarray, first: int) -> None:
        """Compares a block of texts, which come in the order of the file.

        Args:
          vectors: [V, D] of any floating type.
          splits: int64 [N + 1], where the vectors of each text begin and end.
          first: the number of the first text.
        """
        splits = splits - splits[0]
        most = max(1, _MAX_PRODUCTS // max(map(len, self._queries)))
        for start, stop in _parts(splits, most):
            rows = slice(int(splits[start]), int(splits[stop]))
            part = splits[start : stop + 1] - splits[start]
            values = np.require(vectors[rows], np.float32, ["C", "ALIGNED"])
            self._add(values, part, first + start)

    def _add(self, vectors: np.ndarray, splits: np.ndarray, first: int) -> None:
        texts = np.flatnonzero(np.diff(splits))  # those with vectors
        self.counts["zero"] += len(splits) - 1 - len(texts)
        if not len(texts):
            return
        begins = splits[texts]
        finite = np.logical_and.reduceat(np.isfinite(vectors).all(axis=1), begins)
        self.counts["compared"] += int(finite.sum())
        self.counts["not_finite"] += int((~finite).sum())
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("vd,vd->v", vectors, vectors))
            longest = np.maximum.reduceat(lengths, begins).astype(np.float64)
        for number, query in enumerate(self._queries):
            with np.errstate(over="ignore", invalid="ignore"):
                products = vectors @ query.T.astype(np.float32)
                sums = np.maximum.reduceat(products, begins, axis=0).sum(axis=1, dtype=np.float64)
                # The bound of a sum of D float32 products, for each vector of the query.
                error = longest * np.linalg.norm(query, axis=1).sum()
                error = error * (2 * (vectors.shape[1] + 8) * 2.0**-24)
                upper, lower = sums + error, sums - error
            unsure = ~np.isfinite(upper) | ~np.isfinite(lower)
            upper[unsure], lower[unsure] = np.inf, -np.inf
            upper[~finite], lower[~finite] = -np.inf, -np.inf
            near = np.flatnonzero(upper > self._hits[number].bound(self._top))
            if len(near) > self._top:
                near = near[upper[near] >= np.partition(lower[near], -self._top)[-self._top]]
            rows = (vectors[splits[text] : splits[text + 1]] for text in texts[near])
            exact = np.array([_max_sim(query, each) for each in rows])
            block = exact, first + texts[near], np.zeros(len(near), np.int64)
            self._hits[number] = self._hits[number].joined(self._top, *block)


def _parts(splits: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Runs of texts with at most `most` vectors, or a single text with more."""
    start = 0
    while start < len(splits) - 1:
        stop = int(np.searchsorted(splits, splits[start] + most, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _products(query: np.ndarray, vectors: np.ndarray) -> Iterator[np.ndarray]:
    """The products of each vector of a query with those of a text, float64 [V]."""
    wide = vectors.astype(np.float64)
    # Not a matrix product, whose rounding depends on the place of a row.
    return ((wide * vector).sum(axis=1) for vector in query)


def _max_sim(query: np.ndarray, vectors: np.ndarray) -> float:
    return sum(float(products.max()) for products in _products(query, vectors))


def matches(query: Query, vectors: np.ndarray, tokens: Sequence[str]) -> tuple[Match, ...]:
    """What each token of a query matches in a text of `vectors` [V, D] and their `tokens`."""
    names: Sequence[Any] = query.tokens or [""] * len(query.vectors)
    best = []
    for name, products in zip(names, _products(query.vectors, vectors), strict=True):
        place = int(products.argmax())
        best.append(Match(name, place, tokens[place], float(products[place])))
    return tuple(best)


def best_match(query: Query, candidates: Sequence[Match]) -> Match:
    """The strongest match of the user's own tokens; of all if the query has none of these."""
    own = [match for match, is_own in zip(candidates, query.own, strict=True) if is_own]
    return max(own or candidates, key=lambda match: match.similarity)
