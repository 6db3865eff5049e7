"""The encoder that `verify` compares with, against the one of `tests.reference`."""

import numpy as np
import pytest

from bert_features.verify.reference_encoder import ReferenceEncoder
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
