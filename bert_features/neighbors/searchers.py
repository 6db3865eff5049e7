"""Searchers of features, by `OutputKind.search`: how queries are made, compared and shown."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from bert_features.errors import ConfigError
from bert_features.files import is_url
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, ShortRepr
from bert_features.formats.small_vectors import restore
from bert_features.neighbors.maxsim import Match, MaxSimSearch, Query, best_match, matches
from bert_features.neighbors.queries import Options, embed, load_extractor, prompt_of_queries
from bert_features.neighbors.search import Hits, Search, SparseSearch
from bert_features.readers.input_example import InputExample

logger = logging.getLogger("bert_features")

# For each open file the lengths of each feature's vectors, float32 [N] for each block: as costly as
# the products with a query, and the same in the next search.
_NORMS: WeakKeyDictionary[FeatureFile, dict[str, dict[int, np.ndarray]]] = WeakKeyDictionary()


@dataclass(frozen=True, repr=False)
class Neighbor(ShortRepr):
    """A vector near a query, and where it is.

    Attributes:
      similarity: its similarity with the query.
      unique_id: the id of its example.
      record: the number of its record in the file, from 0.
      position: which token, word or span of the example it belongs to; None for a sequence.
      tokens: the tokens or words of the example; None for a sequence or a span.
      span: the text of a span; None for another level.
      matches: for late interaction what each token of the query matches; the position is that of
        the strongest. None for others.
    """

    similarity: float
    unique_id: int | str
    record: int
    position: int | None = None
    tokens: tuple[str, ...] | None = None
    span: str | None = None
    matches: tuple[Match, ...] | None = None

    @property
    def token(self) -> str | None:
        """The token or word; None for a sequence."""
        if self.tokens is None or self.position is None:
            return None
        return self.tokens[self.position]


class VectorSearcher:
    """Vectors, compared one by one.

    Raises ConfigError if an option has a value that it does not take.

    Attributes:
      takes: the values of options that it takes, where it does not take any.
      reason: why it takes no others: a part of a sentence.
    """

    takes: ClassVar[dict[str, tuple[str | None, ...]]] = {}
    reason: ClassVar[str] = ""

    def __init__(self, file: FeatureFile, feature: Feature, options: Options) -> None:
        self.file, self.feature, self.options = file, feature, options
        for name, allowed in self.takes.items():
            if getattr(options, name) not in allowed:
                raise ConfigError(
                    f"{name} is {getattr(options, name)!r}; {feature.name} {self.reason}; leave "
                    f"{name} out"
                )

    def of_vectors(self, vectors: Any) -> tuple[Any, bool]:
        """Queries, and whether it is a single one; ConfigError: their shape is another."""
        if self.options.token is not None:
            raise ConfigError(
                "token names a word of a text, but the queries are vectors; leave it out"
            )
        self._check_shape(vectors, 1, "[{0}] or [Q, {0}]")
        return np.atleast_2d(vectors), vectors.ndim == 1

    def _check_shape(self, vectors: np.ndarray, least: int, allowed: str) -> None:
        width = self.feature.width
        if vectors.ndim not in (least, least + 1) or vectors.shape[-1] != width:
            raise ConfigError(
                f"the queries have shape {list(vectors.shape)}; allowed: {allowed.format(width)}, "
                f"as the vectors of {self.feature.name!r}"
            )

    def of_texts(self, texts: Sequence[str]) -> Any:
        """Queries of texts; errors as `queries.embed`."""
        return embed(self.file, self.feature, texts, self.options)

    def find(self, queries: Any) -> list[Hits]:
        """What is nearest to each query."""
        file, feature = self.file, self.feature
        similarity = self.options.similarity or "cosine"
        search = Search(queries, top=self.options.top, similarity=similarity)
        # What an address holds may change unseen.
        kept = {} if is_url(file.path) else _NORMS.setdefault(file, {})
        known, first = kept.setdefault(feature.name, {}), 0
        for number, (values, row_splits) in enumerate(file.blocks(feature.name)):
            block = restore(values, feature), first, row_splits
            known[number] = search.add(*block, known.get(number))
            first += len(values) if row_splits is None else len(row_splits) - 1
        _warn(search.counts)
        return search.hits()

    def describe(self, queries: Any, hits: Sequence[Hits]) -> list[list[Neighbor]]:
        """The hits of each query, with what the file says of them."""
        # In the order of the file: a group of records, or a shard, is then read once.
        numbers = sorted({int(number) for each in hits for number in each.records})
        known: dict[int, tuple[int | str, tuple[str, ...]]] = {}
        for number in numbers:  # without the vectors
            record = self.file[number]
            known[number] = record.unique_id, record.unit_names(self.feature.level)

        def neighbor(similarity: float, number: int, position: int) -> Neighbor:
            unique_id, names = known[number]
            place = None if self.feature.is_sequence else position
            tokens = names if self.feature.level in ("token", "word") else None
            span = names[position] if self.feature.level == "span" else None
            return Neighbor(similarity, unique_id, number, place, tokens, span)

        return [list(map(neighbor, *(column.tolist() for column in each))) for each in hits]


class TermSearcher(VectorSearcher):
    """Sparse vectors, compared by the dot product."""

    takes: ClassVar = {"similarity": (None, "dot"), "token": (None,)}
    reason = "has the terms of whole texts, which the dot product compares, exactly"

    def of_vectors(self, vectors: Any) -> tuple[Any, bool]:
        """Queries, a matrix of SciPy or an array [Q, V]; [V] is a single one."""
        return vectors, vectors.ndim == 1

    def of_texts(self, texts: Sequence[str]) -> Any:
        """A CSR matrix [Q, V]; errors as `queries.embed`."""
        loaded = load_extractor(self.file, self.feature, self.options)
        extractor = loaded.of_queries(self.feature.name)
        prompt = prompt_of_queries(extractor, self.options)
        return extractor.encode(list(texts), self.feature.name, prompt=prompt)

    def find(self, queries: Any) -> list[Hits]:
        """The texts with the largest products."""
        search, first = SparseSearch(queries, top=self.options.top), 0
        for block in self.file.sparse_blocks(self.feature.name):
            search.add(block, first)
            first += block.shape[0]
        _warn(search.counts)
        return search.hits()


class MaxSimSearcher(VectorSearcher):
    """Texts, compared by late interaction: the vectors of each with those of a query."""

    takes: ClassVar = dict.fromkeys(("token", "similarity"), (None,))
    reason = "is for late interaction, which compares texts by MaxSim, token by token"
    _mean = False

    def of_vectors(self, vectors: Any) -> tuple[list[Query], bool]:
        """Queries, [N, Q, D]; [Q, D] is a single one."""
        self._check_shape(vectors, 2, "[Q, {0}] or [N, Q, {0}]")
        single = vectors.ndim == 2
        return [Query.of_vectors(each) for each in (vectors[None] if single else vectors)], single

    def of_texts(self, texts: Sequence[str]) -> list[Query]:
        """Queries with their tokens; errors as `queries.embed`."""
        extractor = load_extractor(self.file, self.feature, self.options)
        prompt = prompt_of_queries(extractor, self.options)
        examples = [InputExample(number, text) for number, text in enumerate(texts)]
        frame, sides = extractor.tokenizer.frame, extractor.preparation.sides
        assert sides is not None  # the output is for late interaction
        others = [*frame.special_ids, *extractor.tokenizer.markers, sides.query.fill_id]
        queries = []
        for batch in extractor.batches(lambda: examples, prompt=prompt):
            for record in batch.records([self.feature]):
                level = self.feature.level
                vectors = np.asarray(record.features[self.feature.name], np.float64)
                is_own = ~np.isin((record.units or {})[level]["scored_token_ids"], others)
                queries.append(Query(vectors, record.unit_names(level), is_own))
        settings = extractor.checkpoint.multi_vector
        self._mean = settings is not None and settings.similarity == "meanmaxsim"
        return queries

    def find(self, queries: Any) -> list[Hits]:
        """The texts with the largest sums, or means, of the best products."""
        search, first = MaxSimSearch(queries, top=self.options.top, mean=self._mean), 0
        for values, row_splits in self.file.blocks(self.feature.name):
            assert row_splits is not None  # a text has several vectors
            search.add(restore(values, self.feature), row_splits, first)
            first += len(row_splits) - 1
        _warn(search.counts)
        return search.hits()

    def describe(self, queries: Any, hits: Sequence[Hits]) -> list[list[Neighbor]]:
        """The hits, each with what the tokens of its query match."""
        return [
            [
                self._neighbor(query, similarity, number)
                for similarity, number, _ in zip(*(c.tolist() for c in its_hits), strict=True)
            ]
            for query, its_hits in zip(queries, hits, strict=True)
        ]

    def _neighbor(self, query: Query, similarity: float, number: int) -> Neighbor:
        record = self.file[number]
        tokens = record.unit_names(self.feature.level)
        matched = matches(query, restore(record.features[self.feature.name], self.feature), tokens)
        position = best_match(query, matched).position
        return Neighbor(similarity, record.unique_id, number, position, tokens, matches=matched)


SEARCHERS = {"vectors": VectorSearcher, "terms": TermSearcher, "maxsim": MaxSimSearcher}


def _warn(counts: Counter[str]) -> None:
    zero, not_finite = counts["zero"], counts["not_finite"]
    if zero or not_finite:
        logger.warning(
            "%s of %s vectors were left out: %s zero, %s not finite",
            *(f"{n:,}" for n in (zero + not_finite, counts.total(), zero, not_finite)),
        )
