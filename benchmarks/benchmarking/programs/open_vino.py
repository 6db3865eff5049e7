"""OpenVINO with its asynchronous queue and the performance hint that is fastest for the job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Arrays, Done, Settings, SortedBatches, threads
from benchmarking.programs.onnx_runtime import in_order

# OpenVINO's names of precisions.
_HINTS = {"float32": "f32", "bfloat16": "bf16"}


class _Compiled:
    """A compiled model and its queue of requests."""

    def __init__(self, folder: Path, graph: str, settings: Settings) -> None:
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(
            str(folder / f"{graph}.xml"),
            "CPU",
            {
                "PERFORMANCE_HINT": settings["hint"],
                "INFERENCE_PRECISION_HINT": _HINTS[settings["precision"]],
                "INFERENCE_NUM_THREADS": threads(),
            },
        )
        self._queue = openvino.AsyncInferQueue(compiled)  # the hint decides the number of requests
        self._queue.set_callback(self._take)
        self._results: list[tuple[Any, np.ndarray]] = []

    def _take(self, request: Any, key: Any) -> None:
        # The next batch of a request reuses its memory.
        self._results.append((key, request.get_output_tensor(0).data.copy()))

    def infer(self, batches: Any) -> list[tuple[Any, np.ndarray]]:
        """Takes (key, inputs); returns (key, output) in the order of completion."""
        self._results = []
        for key, batch in batches:
            self._queue.start_async(batch, key)
        self._queue.wait_all()
        return self._results


class OpenVinoJob:
    """A loop over sorted batches with dynamic padding; the mean is in the graph."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        self._compiled = _Compiled(folder, "pooled", settings)
        self._batches = SortedBatches(folder, corpus.max_length)
        self._batch_size = settings["batch_size"]

    def run(self, corpus: Corpus) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns (indices of texts, vectors) for each batch."""
        return self._compiled.infer(self._batches(corpus.texts, self._batch_size))

    def finish(self, result: list[tuple[np.ndarray, np.ndarray]]) -> Done:
        """Puts the vectors in order; the counts come from the batches."""
        return Done(in_order(result), self._batches.tokens, self._batches.computed_tokens)


class OpenVinoEncoder:
    """Computes the last layer of batches."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._compiled = _Compiled(folder, "hidden", settings)

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """Returns the outputs of the graph."""
        found = dict(self._compiled.infer(enumerate(batches)))
        return [found[i] for i in range(len(batches))]
