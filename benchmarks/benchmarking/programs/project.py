"""This project, with its defaults except for the precision."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Arrays, Done, Settings

_OUTPUTS = [{"name": "text", "layers": [-1], "level": "sequence"}]
_WORDS = [{"name": "text", "layers": [-1], "level": "word", "pooling": "mean"}]
_NAMES = {
    "input_word_ids": "input_ids",
    "input_mask": "attention_mask",
    "input_type_ids": "token_type_ids",
}


class ProjectJob:
    """Runs `FeatureExtractor.batches` for the mean vector of the last layer of each text."""

    outputs = _OUTPUTS

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        from bert_features import FeatureExtractor
        from bert_features.machine.hardware import keep_kernels_on_one_thread

        del folder  # the project brings the embedded model
        keep_kernels_on_one_thread()  # as the command `extract` does
        self._extractor = FeatureExtractor.from_checkpoint(
            "minilm",
            outputs=self.outputs,
            precision=settings["precision"],
            max_seq_length=corpus.max_length,
        )
        self._counts: Any = None

    def run(self, corpus: Corpus) -> list[np.ndarray]:
        """Returns the vectors of each batch, in the order of the texts."""

        def examples() -> Any:
            return (self.example(i, text) for i, text in enumerate(corpus.texts))

        def note(counts: Any) -> None:
            self._counts = counts

        return [
            batch.features["text"] for batch in self._extractor.batches(examples, progress=note)
        ]

    def example(self, unique_id: int, text: str) -> Any:
        """The input for a text."""
        from bert_features import InputExample

        return InputExample(unique_id, text)

    def finish(self, result: list[np.ndarray]) -> Done:
        """Joins the vectors; the counts come from the extractor."""
        return Done(
            np.concatenate(result),
            self._counts.tokens,
            self._counts.computed_tokens,
            self._extractor.traces,
        )


class ProjectWords(ProjectJob):
    """The same for the vector of each word: the mean of its tokens."""

    outputs = _WORDS

    def example(self, unique_id: int, text: str) -> Any:
        """The input for a text as words, which are separated by white space."""
        from bert_features import InputExample

        return InputExample.from_words(unique_id, text.split())


class ProjectCalls:
    """Calls a `FeatureExtractor` in its two ways, and the device step that both run."""

    def __init__(self, folder: Path, text: str) -> None:
        from bert_features import FeatureExtractor, InputExample

        del folder  # the project brings the embedded model
        extractor = FeatureExtractor.from_checkpoint("minilm", outputs=_OUTPUTS)
        step, preparation = extractor._step, extractor.preparation
        stream = preparation.input_fn(lambda: [InputExample(0, text)]).stream(
            preparation.batch_params()
        )
        columns = next(iter(stream)).columns
        batch = {name: columns[name] for name in extractor._model.inputs}
        self.ways = {
            "a call": lambda: extractor([text])[0].features["text"][None],
            "encode": lambda: extractor.encode([text]),
            "the device step alone": lambda: step.run(batch)["text"],
        }


class ProjectEncoder:
    """Runs the device step for the tokens of a layer, compiled as in the Estimator."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        from bert_features.checkpoints.find import find_checkpoint
        from bert_features.checkpoints.read import read_weights
        from bert_features.config.output_specs import (
            plan_outputs,
        )
        from bert_features.config.outputs import OutputConfig
        from bert_features.encoder.step import DeviceStep
        from bert_features.runtime.tensorflow import TensorFlowRuntime

        checkpoint = find_checkpoint(folder)
        wanted = OutputConfig.of({"name": "x", "layers": [settings.get("layer", -1)]})
        model_fn = DeviceStep(
            checkpoint.config,
            read_weights(checkpoint),
            plan_outputs([wanted], checkpoint.config),
            precision=settings["precision"],
        )
        # The runtime keeps no hold of the model, whose variables it computes with.
        self._model_fn = model_fn
        self._step = TensorFlowRuntime("cpu").compile(model_fn.step, model_fn.weights)

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """Runs batches, with as many in flight as in `Estimator.predict_batches`."""
        results: list[np.ndarray] = []
        waiting: deque[Callable[[], dict[str, np.ndarray]]] = deque()
        for batch in batches:
            inputs = {ours: batch[theirs].astype(np.int32) for ours, theirs in _NAMES.items()}
            waiting.append(self._step(inputs))
            if len(waiting) == self._step.in_flight:
                results.append(waiting.popleft()()["x"])
        return [*results, *(step()["x"] for step in waiting)]
