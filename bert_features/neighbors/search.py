"""The vectors nearest to some queries: exact, a block at a time.

Each block is compared in float32, which is fast. What may be among the nearest within the rounding
error of float32 is compared again in float64, which decides. So the result is exact in float64, and
equal vectors have equal similarities wherever they lie.

Sparse vectors have a search of their own, by their products in float64.

Dimensions: `N` vectors of a block, `Q` queries, `D` width, `K` nearest vectors of a query,
`V` pieces of the vocabulary.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_features.errors import ConfigError
from bert_features.extraction.similarity import SIMILARITY_FUNCTIONS

# Values of the largest array that the comparison of a block makes.
_MAX_VALUES = 1 << 22
# Squared lengths outside these bounds may have lost digits in float32.
_LEAST_SQUARE, _LARGEST_SQUARE = 1e-24, 1e30


class Hits(NamedTuple):
    """The vectors nearest to a query, the nearest first; equal ones in the order of the file.

    Attributes:
      similarities: float64 [K].
      records: int64 [K], the number of the record that each vector belongs to.
      positions: int64 [K], which of its record's vectors it is; 0 where a record has one.
    """

    similarities: np.ndarray
    records: np.ndarray
    positions: np.ndarray

    def best(self, top: int) -> "Hits":
        """The `top` nearest of these."""
        order = np.lexsort((self.positions, self.records, -self.similarities))[:top]
        return Hits(*(column[order] for column in self))

    def joined(self, top: int, *others: np.ndarray) -> "Hits":
        """The `top` nearest of these and others, whose columns come in this order."""
        columns = zip(self, others, strict=True)
        return Hits(*(np.concatenate(pair) for pair in columns)).best(top)

    def bound(self, top: int) -> float:
        """What a vector further on must exceed to be among the `top`; an equal one is not."""
        return float(self.similarities[-1]) if len(self.similarities) == top else -np.inf


NO_HITS = Hits(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


def check_top(top: int) -> None:
    """Refuses a number of neighbors below 1; raises ConfigError."""
    if top < 1:
        raise ConfigError(f"top is {top}; allowed: an integer of at least 1")


class Search:
    """Finds the vectors nearest to some queries among blocks of vectors.

    Args:
      queries: [Q, D].
      top: K, the number of vectors to find for each query.
      similarity: `cosine`, or `dot` for the plain product.

    Attributes:
      counts: the vectors that were added so far: `compared`; and left out, because `zero` ones have
        no direction, and `not_finite` ones hold NaN or infinity.

    Raises:
      ConfigError: `top` is below 1, the similarity is unknown, or a query is zero or not finite.
    """

    def __init__(self, queries: np.ndarray, *, top: int, similarity: str = "cosine") -> None:
        check_top(top)
        if similarity not in SIMILARITY_FUNCTIONS:
            raise ConfigError(f"similarity is {similarity!r}; allowed: 'cosine', 'dot'")
        self._queries = np.asarray(queries, np.float64)
        self._top, self._cosine = top, similarity == "cosine"
        self._lengths = np.linalg.norm(self._queries, axis=1)
        for number, length in enumerate(self._lengths):
            if not 0 < length < np.inf:
                problem = "zero" if length == 0 else "not finite"
                raise ConfigError(
                    f"the vector of query {number} is {problem}; pass one that has a direction"
                )
        self._units = (self._queries / self._lengths[:, None]).astype(np.float32)
        # The bound of a sum of D float32 products, relative to the lengths; twice, for the norms.
        self._error = np.float32(2 * (self._queries.shape[1] + 8) * 2.0**-24)
        self._hits = [NO_HITS for _ in self._queries]
        self.counts = Counter[str]()

    def hits(self) -> list[Hits]:
        """The nearest vectors of each query."""
        return [hits.best(self._top) for hits in self._hits]

    def add(
        self,
        vectors: np.ndarray,
        first: int,
        row_splits: np.ndarray | None = None,
        norms: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compares a block of records, which come in the order of the file.

        Args:
          vectors: [N, D] of any floating type.
          first: the number of the first record.
          row_splits: int64, where the vectors of each record begin and end; None if each has one.
          norms: what an earlier search returned for the same block.

        Returns:
          The lengths of the vectors, float32 [N]; NaN where float32 may not hold one, and for
          vectors that are left out.
        """
        known = np.empty(len(vectors), np.float32) if norms is None else norms
        step = max(1, _MAX_VALUES // max(self._queries.shape))
        for start in range(0, len(vectors), step):
            part = slice(start, start + step)
            # Aligned: in an .npz file of others values may begin at any byte.
            values = np.require(vectors[part], np.float32, ["C", "ALIGNED"])
            if norms is None:
                known[part] = _norms(values)
            for query, rows, exact in self._near(values, known[part]):
                rows += start
                records = rows if row_splits is None else row_splits.searchsorted(rows, "right") - 1
                positions = rows - (rows if row_splits is None else row_splits[records])
                places = records + first, positions
                self._hits[query] = self._hits[query].joined(self._top, exact, *places)
        return known

    def _near(
        self, vectors: np.ndarray, norms: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """For each query that has any: vectors that may be hits, int64 [R], and similarities."""
        upper, errors = self._compare(vectors, norms)
        # What a vector must exceed to be a hit, float32 [Q], in units of the query's length.
        least = np.array([hits.bound(self._top) for hits in self._hits])
        if not self._cosine:
            least /= self._lengths
        with np.errstate(over="ignore"):
            least = np.nextafter(least.astype(np.float32), np.float32(-np.inf))
        near = upper > least  # an equal similarity further on changes nothing
        for query in np.flatnonzero(near.any(axis=0)):
            rows = np.flatnonzero(near[:, query])
            if len(rows) > self._top:
                highest = upper[rows, query]
                lower = np.where(np.isinf(highest), -np.inf, highest - 2 * errors[rows])
                rows = rows[highest >= np.partition(lower, -self._top)[-self._top]]
            exact = self._exact(vectors[rows], self._queries[query], self._lengths[query])
            yield int(query), rows, exact

    def _compare(self, vectors: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds of the similarities, in units of the query's length.

        Returns:
          float32 [N, Q], -inf for a vector that is left out, and inf for one whose similarity
          float32 cannot bound; and the bound of the error in it, float32 [N].
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if len(self._units) == 1:  # BLAS takes four times as long for a single one
                upper = np.einsum("nd,d->n", vectors, self._units[0])[:, None]
            else:
                upper = vectors @ self._units.T
            if self._cosine:
                upper /= norms[:, None]
                errors = np.broadcast_to(self._error, norms.shape)
            else:
                errors = norms * self._error
            upper += errors[:, None]
        unusual = np.flatnonzero(np.isnan(norms))
        upper[unusual] = np.where(self._is_usable(vectors[unusual]), np.inf, -np.inf)[:, None]
        self.counts["compared"] += len(norms) - len(unusual)
        return upper, errors

    def _is_usable(self, vectors: np.ndarray) -> np.ndarray:
        """Whether vectors, whose lengths are unusual, can be compared, bool [N]; counts them."""
        finite = np.isfinite(vectors).all(axis=1)
        usable = finite & vectors.any(axis=1)
        self.counts["compared"] += int(usable.sum())
        self.counts["not_finite"] += int((~finite).sum())
        self.counts["zero"] += int((finite & ~usable).sum())
        return np.asarray(usable)

    def _exact(self, vectors: np.ndarray, query: np.ndarray, length: float) -> np.ndarray:
        """Similarities of vectors with one query, float64 [N]."""
        wide = vectors.astype(np.float64)
        # Not a matrix product, whose rounding depends on the place of a row.
        products: np.ndarray = (wide * query).sum(axis=1)
        if not self._cosine:
            return products
        norms = np.sqrt((wide * wide).sum(axis=1))
        cosines: np.ndarray = np.clip(products / (norms * length), -1.0, 1.0)
        return cosines


def _norms(vectors: np.ndarray) -> np.ndarray:
    """The lengths of vectors, float32 [N] of [N, D]; NaN where float32 may not hold one."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", vectors, vectors)
    usual = (squares > _LEAST_SQUARE) & (squares < _LARGEST_SQUARE)
    return np.sqrt(np.where(usual, squares, np.float32(np.nan)))


class SparseSearch:
    """Finds the vectors with the largest products with some queries; in float64.

    Vectors that share no term with a query are not found.

    Args:
      queries: [Q, V], a matrix of SciPy or an array.
      top: the number of vectors to find for each query.

    Attributes:
      counts: as of `Search`.

    Raises:
      ConfigError: `top` is below 1, or a query has no terms or a weight that is not finite.
    """

    def __init__(self, queries: Any, *, top: int) -> None:
        from scipy.sparse import csr_matrix

        check_top(top)
        matrix = csr_matrix(queries).astype(np.float64)
        for number in range(matrix.shape[0]):
            values = matrix[number].data
            if not values.any() or not np.isfinite(values).all():
                problem = "has weights that are not finite" if values.any() else "has no terms"
                raise ConfigError(f"the vector of query {number} {problem}; pass another")
        self._queries, self._top = matrix.T.toarray(), top  # [V, Q]
        self._hits = [NO_HITS] * matrix.shape[0]
        self.counts = Counter[str]()

    def hits(self) -> list[Hits]:
        """The vectors of each query."""
        return self._hits

    def add(self, vectors: Any, first: int) -> None:
        """Compares a block, a CSR matrix [N, V]; `first` is the number of its first record."""
        step = max(1, _MAX_VALUES // len(self._hits))
        for start in range(0, vectors.shape[0], step):
            self._add(vectors[start : start + step].astype(np.float64), first + start)

    def _add(self, vectors: Any, first: int) -> None:
        lengths = np.diff(vectors.indptr)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        finite = np.bincount(rows[~np.isfinite(vectors.data)], minlength=len(lengths)) == 0
        self.counts["compared"] += int((finite & (lengths > 0)).sum())
        self.counts["not_finite"] += int((~finite).sum())
        with np.errstate(invalid="ignore"):
            products = vectors @ self._queries
        for query, hits in enumerate(self._hits):
            near = np.flatnonzero(finite & (products[:, query] > 0))
            values = products[near, query]
            if len(near) > self._top:
                least = np.partition(values, -self._top)[-self._top]
                near, values = near[values >= least], values[values >= least]
            block = values, near + first, np.zeros(len(near), np.int64)
            self._hits[query] = hits.joined(self._top, *block)
