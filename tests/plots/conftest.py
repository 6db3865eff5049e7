"""Fixtures of the figures' tests: settings for the toy checkpoint, its states by layer."""

import numpy as np
import pytest

from bert_features.config.extract_config import ExtractConfig
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_LAYERS, TOY_VOCAB, random_weights


@pytest.fixture
def settings(toy, kept_steps):
    return ExtractConfig(checkpoint=toy)


@pytest.fixture(scope="session")
def states():
    """A function: the tokens of a text, and its states by layer, by the encoder in plain NumPy."""
    encoder = NumpyEncoder(TOY, random_weights(TOY))
    tokenizer = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)

    def compute(text):
        tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
        ids = np.array([[tokenizer.vocab[token] for token in tokens]])
        values = encoder(ids, np.ones_like(ids), np.zeros_like(ids))
        return tokens, {
            layer: of_layer[0] for layer, of_layer in zip(TOY_LAYERS, values, strict=True)
        }

    return compute


@pytest.fixture(scope="session")
def cosine():
    """The cosine of two vectors, by its definition."""

    def compute(a, b):
        a, b = np.float64(a), np.float64(b)
        return (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())

    return compute


@pytest.fixture
def passes(monkeypatch):
    """The number of texts of each pass, as a list that grows."""
    from bert_features.extraction.pipeline import Pipeline

    counts = []
    batches = Pipeline.batches

    def counted(self, examples, **options):
        counts.append(len(examples()))
        return batches(self, examples, **options)

    monkeypatch.setattr(Pipeline, "batches", counted)
    return counts
