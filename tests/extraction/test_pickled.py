"""Extractors that are pickled, copied and cloned."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bert_features import FeatureExtractor

OUTPUTS = [{"name": "t", "layers": [0]}, {"name": "s", "level": "sequence", "layers": [-1]}]
TEXTS = ["the bank", "a jackson"] * 4


@pytest.fixture(scope="module")
def extractor(toy):
    return FeatureExtractor.from_checkpoint(toy, outputs=OUTPUTS, batch_size=4).with_outputs(["s"])


@pytest.mark.slow
def test_a_pickle_is_the_settings(extractor):
    data = pickle.dumps(extractor)
    assert len(data) < 5000
    found = pickle.loads(data)
    assert (repr(found), found.config) == (repr(extractor), extractor.config)
    np.testing.assert_array_equal(found.encode(TEXTS), extractor.encode(TEXTS))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, clone])
def test_copies_share_the_weights(extractor, copied):
    other = copied(extractor)
    assert other is not extractor
    assert other._model is extractor._model
    assert other.encode("the bank").shape == (8,)


def test_cross_validation(extractor):
    model = make_pipeline(FunctionTransformer(extractor.encode), LogisticRegression())
    scores = cross_val_score(model, TEXTS, [0, 1] * 4, cv=2, error_score="raise")
    assert scores.tolist() == [1.0, 1.0]
