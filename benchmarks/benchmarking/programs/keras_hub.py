"""KerasHub on TensorFlow: `BertBackbone` under `BertTextEmbedder`, which pools."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Done, Settings, SortedBatches


class KerasHubAsLoadedJob:
    """Runs `BertTextEmbedder.predict` with what `from_preset` makes of the folder.

    That gives other vectors than the model's: KerasHub's GELU is the approximation by tanh, and its
    tokenizer keeps accents.
    """

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        from keras_hub.models import (
            BertBackbone,
            BertTextEmbedder,
            BertTextEmbedderPreprocessor,
            BertTokenizer,
        )

        tokenizer = self.from_preset(BertTokenizer, folder)
        self._model = BertTextEmbedder(
            self.from_preset(BertBackbone, folder),
            BertTextEmbedderPreprocessor(tokenizer, sequence_length=corpus.max_length),
            normalize=False,
        )
        self._model.compile(jit_compile=settings["jit_compile"])
        self._batch_size = settings["batch_size"]
        self._folder, self._length = folder, corpus.max_length

    def from_preset(self, part: Any, folder: Path) -> Any:
        """The tokenizer or the encoder."""
        return part.from_preset(str(folder))

    def run(self, corpus: Corpus) -> np.ndarray:
        """Returns the vectors."""
        self._texts = corpus.texts
        return self._model.predict(list(corpus.texts), batch_size=self._batch_size, verbose=0)

    def finish(self, result: np.ndarray) -> Done:
        """Counts the tokens; the preprocessor pads all rows to the maximum length."""
        tokens, _ = SortedBatches(self._folder, self._length).count(self._texts, self._batch_size)
        return Done(np.asarray(result, np.float32), tokens, len(self._texts) * self._length)


class KerasHubJob(KerasHubAsLoadedJob):
    """The same with the model's own GELU and accents removed, so that the vectors agree."""

    def from_preset(self, part: Any, folder: Path) -> Any:
        """The tokenizer or the encoder, whose GELU has no public setting."""
        from keras.activations import gelu
        from keras_hub.models import BertTokenizer

        if part is BertTokenizer:
            return part.from_preset(str(folder), strip_accents=True)
        backbone = part.from_preset(str(folder))
        for layer in backbone.transformer_layers:
            layer._feedforward_intermediate_dense.activation = gelu
        return backbone
