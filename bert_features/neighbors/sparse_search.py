"""The sparse vectors with the largest products with some queries: exact, a block at a time.

Dimensions: `N` vectors of a block, `Q` queries, `V` pieces of the vocabulary.
"""

from collections import Counter
from typing import Any

import numpy as np

from bert_features.errors import ConfigError
from bert_features.neighbors.search import NO_HITS, Hits, check_top

# Values of the largest array that the comparison of a block makes.
_MAX_VALUES = 1 << 22


class SparseSearch:
    """Finds the vectors with the largest products with some queries; in float64.

    Vectors that share no term with a query are not found.

    Args:
      queries: [Q, V], a matrix of SciPy or an array.
      top: the number of vectors to find for each query.

    Attributes:
      counts: as of `search.Search`.

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
        for query, found in enumerate(self._hits):
            near = np.flatnonzero(finite & (products[:, query] > 0))
            values = products[near, query]
            if len(near) > self._top:
                least = np.partition(values, -self._top)[-self._top]
                near, values = near[values >= least], values[values >= least]
            block = values, near + first, np.zeros(len(near), np.int64)
            self._hits[query] = found.joined(self._top, *block)
