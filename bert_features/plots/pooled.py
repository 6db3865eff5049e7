"""Layers and poolings that a figure compares: which exist, and what their vectors take.

Dimensions: `N` texts, `D` width of a vector.
"""

from collections.abc import Sequence

import numpy as np

from bert_features.config.poolings import POOLINGS, Level
from bert_features.errors import ConfigError, InputError
from bert_features.plots.model import Layer, Model, check_names

# All vectors are in memory at the same time, some of them twice.
_MAX_BYTES = 4 << 30
# What a value may differ by from batch to batch (docs/performance.md).
_ABSOLUTE, _RELATIVE = 1e-5, 2e-6


def check_memory(name: str, count: int, pairs: Sequence[tuple[Layer, str]], width: int) -> None:
    """Refuses `count` vectors of a file, for each layer and pooling, that take too much memory."""
    size = count * len(pairs) * width * 4
    if size > _MAX_BYTES:
        raise InputError(
            f"{name} has {count:,} examples, whose vectors take {size / (1 << 30):.1f} GiB in "
            f"{len(pairs)} combinations of layer and pooling; the limit is {_MAX_BYTES >> 30} GiB: "
            "pass fewer layers, fewer of pooling, or fewer examples"
        )


def combinations(
    model: Model, layers: Sequence[Layer], poolings: Sequence[str], level: Level = "sequence"
) -> list[tuple[Layer, str]]:
    """The pairs (layer, pooling) that exist; the pooler takes the last layer alone."""
    check_names("pooling", poolings, POOLINGS[level])
    last = model.layers()[-1]
    if "pooler" in poolings and last not in layers:
        raise ConfigError(f"pooling is pooler, which takes the last layer; add {last} to layers")
    return [
        (layer, pooling)
        for layer in layers
        for pooling in poolings
        if pooling != "pooler" or layer == last
    ]


def without_noise(vectors: np.ndarray) -> np.ndarray:
    """The vectors [N, D] with dimensions made constant that differ by rounding alone.

    The embeddings of [CLS] are the same in all texts but for the rounding of their batches, which a
    scaler would blow up.
    """
    largest = np.abs(vectors).max()
    is_noise = np.ptp(vectors, axis=0) <= _ABSOLUTE + _RELATIVE * largest
    return np.where(is_noise, vectors[0], vectors)
