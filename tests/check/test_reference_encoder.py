"""The encoder that `doctor --numbers` compares with, against the one of `tests.reference`."""

import numpy as np
import pytest

from bert_features.check.reference_encoder import ReferenceEncoder
from tests import families
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_weights


@pytest.mark.parametrize("hidden_act", ["gelu_erf", "gelu_tanh", "relu"])
def test_two_encoders_in_numpy_agree(hidden_act):
    config = TOY.model_copy(update={"hidden_act": hidden_act})
    weights = random_weights(config)
    ids = np.array([2, 5, 6, 7, 29, 3])
    row = ids[None]
    want = NumpyEncoder(config, weights)(row, np.ones_like(row), np.zeros_like(row))
    got = ReferenceEncoder(config, weights)(ids)
    np.testing.assert_allclose(got, np.concatenate(want), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", families.NAMES)
def test_rows_of_one_type_are_transformers_own(name):
    stored = families.reference(name)
    encoder = ReferenceEncoder(families.checkpoint(name).config, families.weights(name))
    start, end = stored["row_splits"][-3:-1]  # a single text
    assert not stored["type_ids"][start:end].any()
    got = encoder(stored["token_ids"][start:end])
    np.testing.assert_allclose(got, stored["states"][:, start:end], rtol=0, atol=2e-6)
