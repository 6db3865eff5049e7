"""Layers of texts by the reference tokenizer and encoder, for the pages that state computations."""

from pathlib import Path

import numpy as np

from bert_features import find_checkpoint, read_weights
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder


class Oracle:
    """Layers of texts by the reference tokenizer and encoder."""

    def __init__(self, minilm_dir: Path) -> None:
        tokens = (minilm_dir / "vocab.txt").read_text(encoding="utf-8").split("\n")
        self.tokenizer = ReferenceTokenizer.from_tokens(tokens, lower=True)
        checkpoint = find_checkpoint("minilm")
        self.encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint, pooler=True))

    def ids(self, *texts: str) -> list[int]:
        """The ids of texts, between [CLS] and [SEP]."""
        vocab = self.tokenizer.vocab
        return [vocab["[CLS]"], *(i for t in texts for i in self.tokenizer.ids(t)), vocab["[SEP]"]]

    def states(self, ids: list[int]) -> np.ndarray:
        """One row of ids -> [layers, tokens, 384], embeddings first."""
        row = np.array([ids])
        return np.stack([s[0] for s in self.encoder(row, np.ones_like(row), np.zeros_like(row))])

    def __call__(self, *texts: str) -> np.ndarray:
        return self.states(self.ids(*texts))


def close(got: np.ndarray, wanted: np.ndarray) -> None:
    assert got.dtype == np.float32
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
