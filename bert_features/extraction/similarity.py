"""Similarity of vectors, in NumPy.

Dimensions: `N` and `M` vectors, `D` their width.
"""

from typing import Any, Literal, get_args

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.settings import shown
from bert_features.errors import ConfigError

SimilarityFunction = Literal["cosine", "dot"]
SIMILARITY_FUNCTIONS: tuple[str, ...] = get_args(SimilarityFunction)

# A vector is divided by at least this, so that a zero vector is similar to nothing.
_MIN_NORM = 1e-12


def compute_similarity(a: Any, b: Any = None, *, function: str = "cosine") -> np.ndarray:
    """The similarity of each vector of `a` with each of `b`.

    Args:
      a: [N, D], or a single vector, [D].
      b: [M, D] or [D]; by default `a` itself.
      function: `cosine`, or `dot` for the plain product of the vectors.

    Returns:
      float32 [N, M]; a zero vector has a cosine of 0 with all vectors.

    Raises:
      ConfigError: `function` is neither of the two; the vectors have other shapes, or their widths
        differ.
    """
    if function not in SIMILARITY_FUNCTIONS:
        raise ConfigError(f"the similarity function is {function!r}; allowed: 'cosine', 'dot'")
    first = _vectors("a", a)
    second = first if b is None else _vectors("b", b)
    if first.shape[1] != second.shape[1]:
        raise ConfigError(
            f"the vectors of a have {first.shape[1]} values and the vectors of b "
            f"{second.shape[1]}; pass vectors of one width"
        )
    if function == "cosine":
        first, second = _unit(first), _unit(second)
    products: np.ndarray = first @ second.T
    return products


def recorded_function(checkpoint: Checkpoint) -> str:
    """The similarity function that a checkpoint records, else `cosine`.

    Raises:
      ConfigError: it is not available.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or settings.similarity is None:
        return "cosine"
    if settings.similarity not in SIMILARITY_FUNCTIONS:
        raise ConfigError(
            f"{checkpoint.name} records the similarity function {shown(settings.similarity)}, "
            "which is not available; pass function='cosine' or function='dot'"
        )
    return settings.similarity


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, _MIN_NORM))


def _vectors(name: str, values: Any) -> np.ndarray:
    """float32 [N, D] from vectors or a single vector."""
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        raise ConfigError(
            f"{name} is {values!r}, vectors of tokens or words; similarity compares vectors of "
            "texts, [N, D], as outputs of level 'sequence' have"
        )
    array = np.asarray(values, np.float32)
    if array.ndim not in (1, 2):
        raise ConfigError(f"{name} has shape {list(array.shape)}; allowed: [N, D] or [D]")
    return np.atleast_2d(array)
