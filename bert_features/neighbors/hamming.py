"""The vectors of bits nearest to some queries: first by Hamming distance, then by float queries.

The vectors that differ from the signs of a query in the fewest bits are candidates. The products of
the query's floats with their bits, -1 and 1, rank them (Yamada et al. 2021, "Efficient passage
retrieval with hashing for open-domain question answering").

Dimensions: `N` vectors of a block, `D` width, `E` bytes that hold D bits, `C` candidates.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_features.formats.records import Feature
from bert_features.formats.small_vectors import restore
from bert_features.neighbors.search import Hits, Search

_CANDIDATES = 1000  # as in the paper
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)


class HammingSearch:
    """Finds the `top` vectors of bits nearest to queries, floats [Q, D]; as `search.Search`.

    For `dot`, bits are -1 and 1.
    """

    def __init__(self, queries: np.ndarray, feature: Feature, *, top: int, similarity: str) -> None:
        Search(queries, top=top, similarity=similarity)  # it checks them
        self._rankings = [Search(q[None], top=top, similarity=similarity) for q in queries]
        self._queries, self._feature = np.packbits(queries > 0, axis=1), feature
        self._most = max(top, _CANDIDATES)
        none, bits = np.empty(0, np.int64), np.empty((0, self._queries.shape[1]), np.uint8)
        # Of each query: distances [C], bits [C, E], records [C] and positions [C], as in the file.
        self._found: list[Sequence[np.ndarray]] = [(none, bits, none, none) for _ in queries]
        self.counts = Counter[str]()

    def add(self, vectors: np.ndarray, records: np.ndarray, positions: np.ndarray) -> None:
        """Compares a block: uint8 [N, E], and the rest as in `Search.add`."""
        self.counts["compared"] += len(vectors)
        for number, (query, before) in enumerate(zip(self._queries, self._found, strict=True)):
            distances = _count_bits(vectors ^ query)
            full = len(before[0]) == self._most
            # An equal distance further on changes nothing, so `<`.
            near = np.flatnonzero(distances < before[0].max()) if full else slice(None)
            block = (distances, vectors, records, positions)
            joined = [np.concatenate([a, b[near]]) for a, b in zip(before, block, strict=True)]
            # Stable, so of equal ones the first stay; then in the order of the file again.
            nearest = np.sort(np.argsort(joined[0], kind="stable")[: self._most])
            self._found[number] = [column[nearest] for column in joined]

    def hits(self) -> list[Hits]:
        """The nearest vectors of each query."""
        for ranking, (_, bits, *places) in zip(self._rankings, self._found, strict=True):
            ranking.add(restore(bits, self._feature), *places)
        return [ranking.hits()[0] for ranking in self._rankings]


def _count_bits(values: np.ndarray) -> np.ndarray:
    """The number of ones in each row of bytes, int64."""
    counts = np.bitwise_count(values) if hasattr(np, "bitwise_count") else _ONES[values]
    return np.asarray(counts.sum(axis=1, dtype=np.int64))
