"""flair's `TransformerWordEmbeddings`, for vectors of words."""

from pathlib import Path

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Done, Settings, SortedWords, threads


class FlairWords:
    """Calls `embed` with batches of sentences, in the order of the texts."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        import torch
        from flair.embeddings import TransformerWordEmbeddings

        torch.set_num_threads(threads())
        self._embeddings = TransformerWordEmbeddings(
            str(folder),
            fine_tune=False,
            layers="-1",
            subtoken_pooling="mean",
            transformers_tokenizer_kwargs={"model_max_length": corpus.max_length},
        )
        self._batch_size = settings["batch_size"]
        self._folder, self._length = folder, corpus.max_length

    def run(self, corpus: Corpus) -> list[np.ndarray]:
        """Returns the vectors of the words of each text."""
        import torch
        from flair.data import Sentence

        self._texts = corpus.texts
        vectors = []
        for start in range(0, len(self._texts), self._batch_size):
            # A list of words; flair would split a text by rules of its own.
            texts = self._texts[start : start + self._batch_size]
            sentences = [Sentence(text.split()) for text in texts]
            self._embeddings.embed(sentences)
            for sentence in sentences:
                words = torch.stack([word.embedding for word in sentence])
                vectors.append(words.numpy(force=True))
        return vectors

    def finish(self, result: list[np.ndarray]) -> Done:
        """Counts the tokens."""
        batches = SortedWords(self._folder, self._length)
        return Done(np.concatenate(result), *batches.count(self._texts, self._batch_size))
