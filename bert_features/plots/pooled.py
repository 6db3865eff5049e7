"""The vectors of labelled texts at every layer and pooling, from one pass.

Dimensions: `N` texts, `D` width of a vector.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bert_features.config.poolings import POOLINGS, Level
from bert_features.errors import ConfigError, InputError
from bert_features.plots.labelled import Labelled
from bert_features.plots.model import Layer, Model, Report, check_names, output_name, output_of

_T = TypeVar("_T")

# All vectors are in memory at the same time, some of them twice.
_MAX_BYTES = 4 << 30
# What a value may differ by from batch to batch (docs/performance.md).
_ABSOLUTE, _RELATIVE = 1e-5, 2e-6


def pooled_vectors(
    model: Model,
    labelled: Labelled,
    layers: Sequence[Layer],
    poolings: Sequence[str],
    report: Report,
) -> Mapping[tuple[Layer, str], np.ndarray]:
    """The vectors of texts by layer and pooling, float32 [N, D].

    Raises ConfigError for a pooling that is unknown or named twice, or without the pooler's layer;
    InputError if the vectors would take too much memory.
    """
    pairs = combinations(model, layers, poolings)
    check_memory(labelled.name, len(labelled.examples), pairs, model.checkpoint.config.hidden_size)
    outputs = [output_of(layer, "sequence", pooling) for layer, pooling in pairs]
    records = model.extract(labelled.examples, outputs, report)
    return {
        pair: without_noise(np.stack([record.features[output_name(*pair)] for record in records]))
        for pair in pairs
    }


def check_memory(name: str, count: int, pairs: Sequence[tuple[Layer, str]], width: int) -> None:
    """Refuses `count` vectors of a file, for each layer and pooling, that take too much memory."""
    size = count * len(pairs) * width * 4
    if size > _MAX_BYTES:
        raise InputError.naming(
            "{name} has {count:,} examples, whose vectors take {size:.1f} GiB in {pairs} "
            "combinations of layer and pooling; the limit is {most} GiB: pass fewer {layers}, "
            "fewer of {pooling}, or fewer examples",
            name=name,
            count=count,
            size=size / (1 << 30),
            pairs=len(pairs),
            most=_MAX_BYTES >> 30,
        )


def each_on_one_thread(unit: str, things: Iterable[_T], report: Report) -> Iterator[_T]:
    """The things, reported one by one; until the last is done, libraries compute on one thread.

    A library that is loaded meanwhile is not limited.

    For matrices of this size several threads wait for each other more than they compute: t-SNE of
    240 texts takes 0.6 s with one, and 4 s with two where other programs use the cores.
    """
    from threadpoolctl import threadpool_limits

    listed = list(things)
    with threadpool_limits(1):
        for done, thing in enumerate(listed):
            report(unit, done, len(listed))
            yield thing


def combinations(
    model: Model, layers: Sequence[Layer], poolings: Sequence[str], level: Level = "sequence"
) -> list[tuple[Layer, str]]:
    """The pairs (layer, pooling) that exist; the pooler takes the last layer alone."""
    check_names("pooling", poolings, POOLINGS[level])
    last = model.layers()[-1]
    if "pooler" in poolings and last not in layers:
        raise ConfigError.naming(
            "{pooling} is pooler, which takes the last layer; add {last} to {layers}", last=last
        )
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
