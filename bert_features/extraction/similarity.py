"""Search: vectors of queries and documents, and their similarity, in NumPy.

Dimensions: `N` and `M` vectors, `D` their width.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.other_names import hint_of
from bert_features.config.settings import shown
from bert_features.encoder.finishing import unit_length
from bert_features.errors import ConfigError
from bert_features.extraction.encoding import Padded, Ragged
from bert_features.formats.records import splits_of

SimilarityFunction = Literal["cosine", "dot"]
SIMILARITY_FUNCTIONS: tuple[str, ...] = get_args(SimilarityFunction)

# The names that sentence-transformers looks for, in their order.
_QUERY_NAMES = ("query",)
_DOCUMENT_NAMES = ("document", "passage", "corpus")


class EncodesByPrompt:
    """`encode` with the checkpoint's prompts for queries and documents."""

    prompts: Any  # a container of their names
    encode: Callable[..., Any]

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            if hint := hint_of(name):
                raise AttributeError(f"{type(self).__name__} has no {name}; {hint}")
            return object.__getattribute__(self, name)  # Python's own error

    def refuse(self, unknown: Iterable[str]) -> None:
        """Refuses keywords that a call does not have; raises ConfigError."""
        for name in unknown:
            hint = hint_of(name) or "settings go to from_checkpoint, or to the service"
            raise ConfigError(f"this call of {type(self).__name__} has no {name}; {hint}")

    def encode_query(self, texts: Any, output: str | None = None, **arguments: Any) -> Any:
        """The vectors of queries: `encode` with the checkpoint's prompt `query`, if it has one.

        The arguments are as in `encode`; a `prompt` or `prompt_name` is taken instead.
        """
        return self._encode_as(_QUERY_NAMES, texts, output, arguments)

    def encode_document(self, texts: Any, output: str | None = None, **arguments: Any) -> Any:
        """The vectors of texts to be found; as `encode_query`.

        The prompt is `document`, `passage` or `corpus`, the first that the checkpoint has.
        """
        return self._encode_as(_DOCUMENT_NAMES, texts, output, arguments)

    def _encode_as(
        self, names: tuple[str, ...], texts: Any, output: str | None, arguments: dict[str, Any]
    ) -> Any:
        if arguments.get("prompt") is None and arguments.get("prompt_name") is None:
            known = self.prompts
            arguments["prompt_name"] = next((name for name in names if name in known), None)
        return self.encode(texts, output, **arguments)


def similarity_of_texts(
    a: Any, b: Any, checkpoint: Checkpoint, late: Sequence[bool], function: str | None
) -> np.ndarray:
    """See `FeatureExtractor.similarity`; `late` says of each output if it makes multi-vectors."""
    first, second = (_of_kind(each, late) for each in (a, a if b is None else b))
    if type(first) is not type(second):
        names = f"{type(a).__name__} and {type(b).__name__}"
        raise ConfigError(f"a and b are of two kinds ({names}); pass vectors of one output")
    if isinstance(first, np.ndarray):
        return compute_similarity(a, b, function=function or recorded_function(checkpoint))
    if function not in (None, "dot"):
        raise ConfigError(f"function is {function!r}; only single dense vectors have it")
    _check_widths(*(getattr(each, "values", each).shape[1] for each in (first, second)))
    if not isinstance(first, Ragged):
        return np.asarray((first @ second.T).toarray(), np.float32)
    settings = checkpoint.multi_vector
    mean = settings is not None and settings.similarity == "meanmaxsim"
    return _max_sim(first, second, mean=mean)


def compute_similarity(a: Any, b: Any = None, *, function: str = "cosine") -> np.ndarray:
    """As `FeatureExtractor.similarity`, without a checkpoint: float32 [N, M]."""
    if function not in SIMILARITY_FUNCTIONS:
        raise ConfigError(f"the similarity function is {function!r}; allowed: 'cosine', 'dot'")
    first = _vectors("a", a)
    second = first if b is None else _vectors("b", b)
    _check_widths(first.shape[1], second.shape[1])
    if function == "cosine":
        first, second = unit_length(first, np), unit_length(second, np)
    products: np.ndarray = first @ second.T
    return products


def _of_kind(values: Any, late: Sequence[bool]) -> Any:
    """A sparse matrix; `Ragged`, of multi-vectors; or any array for other vectors.

    `late` says of each output whether it makes multi-vectors.
    """
    if hasattr(values, "tocsr"):
        return values.tocsr()
    if isinstance(values, Padded):
        values = Ragged(values.values[values.mask], splits_of(values.mask.sum(axis=1)))
    elif not isinstance(values, Ragged) and all(late) and np.ndim(values) == 2:
        values = Ragged(values, np.array([0, len(values)]))
    if isinstance(values, Ragged) and any(late):
        return values._replace(values=_vectors("a multi-vector", values.values))
    return np.empty(0)


def _max_sim(queries: Ragged, documents: Ragged, *, mean: bool) -> np.ndarray:
    """float32 [N, M]: the largest product of each vector of a query with a document, added up."""
    starts, ends = queries.row_splits[:-1], queries.row_splits[1:]
    similarities = np.zeros((len(starts), len(documents.row_splits) - 1), np.float32)
    texts = np.flatnonzero(np.diff(documents.row_splits))
    for row, start, stop in zip(similarities, starts, ends, strict=True):
        products = documents.values @ queries.values[start:stop].T
        largest = np.maximum.reduceat(products, documents.row_splits[texts], axis=0)
        row[texts] = largest.sum(axis=1) / (max(stop - start, 1) if mean else 1)
    return similarities


def _check_widths(first: int, second: int) -> None:
    if first != second:
        raise ConfigError(
            f"the vectors of a have {first} values and the vectors of b {second}; pass vectors of "
            "one width"
        )


def recorded_function(checkpoint: Checkpoint) -> str:
    """The function that a checkpoint records, else `cosine`; raises ConfigError if unavailable."""
    settings = checkpoint.sentence_transformers
    if settings is None or settings.similarity is None:
        return "cosine"
    if settings.similarity not in SIMILARITY_FUNCTIONS:
        raise ConfigError(
            f"{checkpoint.name} records the similarity function {shown(settings.similarity)}, "
            "which is not available; pass function='cosine' or function='dot'"
        )
    return settings.similarity


def _vectors(name: str, values: Any) -> np.ndarray:
    """float32 [N, D] from vectors or a single vector."""
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        raise ConfigError(
            f"{name} is {values!r}, vectors of tokens or words; similarity compares vectors of "
            "texts, [N, D], as outputs of level 'sequence' have, and multi-vectors"
        )
    if (dtype := np.asarray(values).dtype) in (np.int8, np.uint8):
        raise ConfigError(
            f"{name} is {dtype}, the codes of outputs of dtype int8 or binary; pass floats, as "
            "read_features(path, floats=True) gives, or search the file with neighbors"
        )
    if dtype.kind not in "biuf":
        raise ConfigError(f"{name} has values of dtype {dtype}; pass vectors, as encode gives them")
    array = np.asarray(values, np.float32)
    if array.ndim not in (1, 2):
        raise ConfigError(f"{name} has shape {list(array.shape)}; allowed: [N, D] or [D]")
    return np.atleast_2d(array)
