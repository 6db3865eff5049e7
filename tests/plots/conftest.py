"""Fixtures of the figures' tests: settings for the toy checkpoint, its states by layer."""

import numpy as np
import pytest

from bert_features.config.extract_config import ExtractConfig

LAYERS = ("embeddings", 0, 1, 2)


@pytest.fixture
def settings(toy, one_device):
    return ExtractConfig(checkpoint=toy)


@pytest.fixture(scope="session")
def states(toy):
    """A function: the tokens of a text, and its states by layer, each from a run of its own."""
    from bert_features import FeatureExtractor

    extractors = {
        layer: FeatureExtractor.from_checkpoint(toy, layers=[layer], device="cpu")
        for layer in LAYERS
    }

    def compute(text):
        records = {layer: extractor([text])[0] for layer, extractor in extractors.items()}
        values = {layer: record.features["layer_output_0"] for layer, record in records.items()}
        return list(records[0].tokens), values

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
    """The number of texts of each pass of an extractor, as a list that grows."""
    from bert_features.extraction.extractor import FeatureExtractor

    counts = []
    call = FeatureExtractor.__call__

    def counted(self, texts, **fields):
        counts.append(len(texts))
        return call(self, texts, **fields)

    monkeypatch.setattr(FeatureExtractor, "__call__", counted)
    return counts
