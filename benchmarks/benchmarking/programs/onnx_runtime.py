"""ONNX Runtime with the graph that its optimizer fused; int8 is dynamic quantization."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Arrays, Done, Settings, SortedBatches, threads


def _session(folder: Path, graph: str, settings: Settings) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    suffix = "-int8" if settings["precision"] == "int8" else ""
    return onnxruntime.InferenceSession(
        str(folder / f"{graph}{suffix}.onnx"), options, providers=["CPUExecutionProvider"]
    )


def _inputs(session: Any, batch: Arrays) -> Arrays:
    # The embedding operator of the fused graph takes int32.
    dtypes = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
    return {i.name: batch[i.name].astype(dtypes[i.type]) for i in session.get_inputs()}


class OnnxRuntimeJob:
    """A loop over sorted batches with dynamic padding; the mean is in the graph."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        self._session = _session(folder, "pooled", settings)
        self._batches = SortedBatches(folder, corpus.max_length)
        self._batch_size = settings["batch_size"]

    def run(self, corpus: Corpus) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns (indices of texts, vectors) for each batch."""
        return [
            (rows, self._session.run(None, _inputs(self._session, batch))[0])
            for rows, batch in self._batches(corpus.texts, self._batch_size)
        ]

    def finish(self, result: list[tuple[np.ndarray, np.ndarray]]) -> Done:
        """Puts the vectors in order; the counts come from the batches."""
        return Done(in_order(result), self._batches.tokens, self._batches.computed_tokens)


class OnnxRuntimeEncoder:
    """Computes the last layer of batches."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._session = _session(folder, "hidden", settings)

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """Returns the outputs of the graph."""
        return [self._session.run(None, _inputs(self._session, batch))[0] for batch in batches]


def in_order(result: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The vectors of all batches, in the order of the texts."""
    count = sum(len(rows) for rows, _ in result)
    vectors = np.empty((count, result[0][1].shape[1]), np.float32)
    for rows, values in result:
        vectors[rows] = values
    return vectors
