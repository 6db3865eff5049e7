"""sentence-transformers and plain transformers, on PyTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import (
    Arrays,
    Done,
    Settings,
    SortedBatches,
    SortedWords,
    threads,
)


def _sentence_transformer(folder: Path, precision: str, max_length: int) -> tuple[Any, Any]:
    """The model with mean pooling, and its Transformer."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    torch.set_num_threads(threads())
    transformer = Transformer(
        str(folder),
        max_seq_length=max_length,
        model_kwargs={"dtype": getattr(torch, precision), "attn_implementation": "sdpa"},
    )
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    return SentenceTransformer(modules=[transformer, pooling], device="cpu"), transformer


class SentenceTransformersCalls:
    """Calls `SentenceTransformer.encode`."""

    def __init__(self, folder: Path, text: str) -> None:
        model, _ = _sentence_transformer(folder, "float32", max_length=128)
        self.ways = {"encode": lambda: model.encode([text], show_progress_bar=False)}


class SentenceTransformersJob:
    """Runs `SentenceTransformer.encode`, which also tokenizes, sorts, batches and pools."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        self._model, transformer = _sentence_transformer(
            folder, settings["precision"], corpus.max_length
        )
        self._batch_size = settings["batch_size"]
        self._tokens = self._computed = 0
        transformer.register_forward_pre_hook(self._count)

    def _count(self, module: Any, inputs: tuple[Any, ...]) -> None:
        # Only kept here; they are summed after the timed part.
        del module
        self._masks.append(inputs[0]["attention_mask"])

    def run(self, corpus: Corpus) -> np.ndarray:
        """Returns the vectors."""
        self._masks: list[Any] = []
        return self._model.encode(
            list(corpus.texts),
            batch_size=self._batch_size,
            convert_to_numpy=True,
            show_progress_bar=False,
        )

    def finish(self, result: np.ndarray) -> Done:
        """Counts the tokens in the masks that the model received."""
        tokens = sum(int(mask.sum()) for mask in self._masks)
        computed = sum(mask.numel() for mask in self._masks)
        return Done(np.asarray(result, np.float32), tokens, computed)


class PipelineJob:
    """Iterates over the `feature-extraction` pipeline and averages the tokens of each text.

    The pipeline batches in the order of the texts. It returns a text's padding too, so that the
    mean needs the masks that the model received.
    """

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        import torch
        from transformers import pipeline

        torch.set_num_threads(threads())
        self._pipeline = pipeline(
            "feature-extraction",
            model=str(folder),
            device="cpu",
            dtype=getattr(torch, settings["precision"]),
            batch_size=settings["batch_size"],
            tokenize_kwargs={"truncation": True, "max_length": corpus.max_length},
            return_tensors=True,
        )
        self._pipeline.model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        del module, inputs
        mask = named["attention_mask"]
        self._computed += mask.numel()
        self._lengths += mask.sum(1).tolist()

    def run(self, corpus: Corpus) -> np.ndarray:
        """Returns the vectors."""
        self._computed = 0
        self._lengths: list[int] = []
        outputs = self._pipeline(text for text in corpus.texts)
        # A text's mask is noted before its output arrives.
        return np.stack(
            [hidden[0, : self._lengths[i]].mean(0).numpy() for i, hidden in enumerate(outputs)]
        )

    def finish(self, result: np.ndarray) -> Done:
        """Takes the counts from the masks."""
        return Done(result, sum(self._lengths), self._computed)


class _Model:
    """A BertModel with PyTorch's fused attention."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        import torch
        from transformers import BertModel

        torch.set_num_threads(threads())
        self._torch = torch
        self.model = BertModel.from_pretrained(
            folder,
            attn_implementation="sdpa",
            add_pooling_layer=False,
            dtype=getattr(torch, settings["precision"]),
        ).eval()

    def inputs(self, batch: Arrays) -> dict[str, Any]:
        return {name: self._torch.from_numpy(values) for name, values in batch.items()}


class TransformersJob(_Model):
    """Runs a plain loop over sorted batches with dynamic padding."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        super().__init__(folder, settings)
        self._batches = SortedBatches(folder, corpus.max_length)
        self._batch_size = settings["batch_size"]

    def run(self, corpus: Corpus) -> np.ndarray:
        """Returns the vectors."""
        torch = self._torch
        vectors = np.empty((len(corpus.texts), self.model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for rows, batch in self._batches(corpus.texts, self._batch_size):
                inputs = self.inputs(batch)
                hidden = self.model(**inputs).last_hidden_state
                mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
                vectors[rows] = pooled.float().numpy()
        return vectors

    def finish(self, result: np.ndarray) -> Done:
        """Takes the counts from the batches."""
        return Done(result, self._batches.tokens, self._batches.computed_tokens)


class TransformersWords(_Model):
    """Runs a plain loop over sorted batches; each word is the mean of its tokens."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        super().__init__(folder, settings)
        self._batches = SortedWords(folder, corpus.max_length)
        self._batch_size = settings["batch_size"]

    def run(self, corpus: Corpus) -> list[np.ndarray]:
        """Returns the vectors of the words of each text."""
        torch = self._torch
        vectors: list[Any] = [None] * len(corpus.texts)
        with torch.inference_mode():
            for rows, batch in self._batches(corpus.texts, self._batch_size):
                hidden = self.model(**self.inputs(batch)).last_hidden_state
                weights = self._batches.weights(rows, hidden.shape[1])
                words = torch.from_numpy(weights).to(hidden.dtype) @ hidden
                for row, values in zip(rows.tolist(), words.float().numpy(), strict=True):
                    vectors[row] = values[: self._batches.num_words(row)]
        return vectors

    def finish(self, result: list[np.ndarray]) -> Done:
        """Takes the counts from the batches."""
        return Done(np.concatenate(result), self._batches.tokens, self._batches.computed_tokens)


class TransformersEncoder(_Model):
    """Computes the last layer of batches."""

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """Returns float32 for every precision."""
        with self._torch.inference_mode():
            return [
                self.model(**self.inputs(batch)).last_hidden_state.float().numpy()
                for batch in batches
            ]
