"""fastembed with the model as a custom one: ONNX Runtime, and the mean in NumPy."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Done, Settings, SortedBatches, threads

_NAME = "benchmark/minilm"


class FastEmbedJob:
    """Runs `TextEmbedding.embed`, which tokenizes and pools, in the order of the texts.

    One process on all cores; its processes side by side (`parallel`) load the model again in every
    call.
    """

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        self._source, self._length = folder, corpus.max_length
        if all(model["model"] != _NAME for model in TextEmbedding.list_supported_models()):
            TextEmbedding.add_custom_model(
                _NAME,
                pooling=PoolingType.MEAN,
                normalization=False,
                sources=ModelSource(hf=_NAME),  # required, but not used: the model is in a folder
                dim=json.loads((folder / "config.json").read_text())["hidden_size"],
                model_file="fastembed.onnx",
            )
        self._folder = tempfile.TemporaryDirectory()
        self._model = TextEmbedding(
            _NAME,
            specific_model_path=str(self._with_maximum_length(Path(self._folder.name))),
            threads=threads(),
            cuda=False,
        )
        self._batch_size = settings["batch_size"]

    def _with_maximum_length(self, to: Path) -> Path:
        """Copies the model; fastembed reads the maximum length from the tokenizer's settings."""
        for name in ("config.json", "tokenizer.json", "fastembed.onnx"):
            shutil.copy(self._source / name, to / name)
        settings = json.loads((self._source / "tokenizer_config.json").read_text())
        settings["model_max_length"] = self._length
        (to / "tokenizer_config.json").write_text(json.dumps(settings))
        return to

    def run(self, corpus: Corpus) -> np.ndarray:
        """Returns the vectors."""
        self._texts = corpus.texts
        return np.stack(list(self._model.embed(list(corpus.texts), batch_size=self._batch_size)))

    def finish(self, result: np.ndarray) -> Done:
        """Counts the tokens."""
        batches = SortedBatches(self._source, self._length)
        return Done(np.asarray(result, np.float32), *batches.count(self._texts, self._batch_size))
