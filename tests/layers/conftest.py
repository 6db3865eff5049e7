"""A toy checkpoint and a batch for it."""

import pytest

from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_batch, random_weights


@pytest.fixture(scope="package")
def weights():
    return random_weights(TOY)


@pytest.fixture(scope="package")
def batch():
    return random_batch(TOY, [9, 4, 1], 9)


@pytest.fixture(scope="package")
def states(weights, batch):
    """[embeddings, block 0, …] by the NumPy encoder."""
    return NumpyEncoder(TOY, weights)(
        batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"]
    )
