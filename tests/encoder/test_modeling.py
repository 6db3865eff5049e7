"""The encoder against float64 NumPy: every layer, every option that changes the arithmetic."""

import numpy as np
import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.errors import CheckpointError
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_batch, random_weights

# float32 against float64: the contract of the design is 1e-5 between our own runs, the issue's
# bound against the reference 2e-5.
TOLERANCE = 2e-5


def make(config, weights, **options):
    encoder = BertEncoder(config, **options)
    encoder.load_weights_dict(weights)
    return encoder


def reference_states(config, weights, batch):
    return NumpyEncoder(config, weights)(
        batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"]
    )


def assert_states_equal_reference(config, weights, batch, tolerance=TOLERANCE, **options):
    outputs = make(config, weights, **options)(batch)
    states = EncoderOutputs.from_dict(outputs).states
    expected = reference_states(config, weights, batch)
    assert len(states) == len(expected)
    real = batch["input_mask"] == 1
    for state, want in zip(states, expected, strict=True):
        np.testing.assert_allclose(np.asarray(state)[real], want[real], rtol=0, atol=tolerance)


@pytest.mark.parametrize("hidden_act", ["gelu_erf", "gelu_tanh", "relu"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_toy_encoder(hidden_act, one_hot):
    config = TOY.model_copy(update={"hidden_act": hidden_act})
    batch = random_batch(config, [7, 3, 10, 1], 10)
    assert_states_equal_reference(
        config, random_weights(config), batch, use_one_hot_embeddings=one_hot
    )


def test_a_published_tf1_checkpoint(data):
    checkpoint = find_checkpoint(data / "keras_bert_tf1")
    batch = random_batch(checkpoint.config, [16, 5], 16)
    assert_states_equal_reference(checkpoint.config, read_weights(checkpoint), batch)


@pytest.mark.parametrize("num_blocks", [0, 1, 2])
def test_blocks_above_the_wanted_one_are_not_built(num_blocks):
    weights = random_weights(TOY)
    batch = random_batch(TOY, [5], 5)
    encoder = make(TOY, weights, num_blocks=num_blocks)
    outputs = encoder(batch)
    assert len(outputs["encoder_outputs"]) == len(encoder.blocks) == num_blocks
    expected = reference_states(TOY, weights, batch)[num_blocks]
    np.testing.assert_allclose(outputs["sequence_output"], expected, rtol=0, atol=TOLERANCE)


def test_a_mask_of_floats():
    batch = random_batch(TOY, [6, 4], 6)
    encoder = make(TOY, random_weights(TOY))
    wanted = encoder(batch)["sequence_output"]
    batch["input_mask"] = batch["input_mask"].astype(np.float32)
    # As the runtimes call it; in a user's call a mask of floats is refused.
    found, _ = encoder.stateless_call(encoder.trainable_variables, [], batch)
    np.testing.assert_array_equal(found["sequence_output"], wanted)


def test_dropout_is_for_training_only():
    weights = random_weights(TOY)
    batch = random_batch(TOY, [6, 6], 6)
    encoder = make(TOY, weights, use_dropout=True)
    plain = make(TOY, weights)
    still = np.asarray(encoder(batch)["sequence_output"])
    np.testing.assert_array_equal(still, plain(batch)["sequence_output"])
    trained = np.asarray(encoder(batch, training=True)["sequence_output"])
    assert np.abs(trained - still).max() > 1e-3
    np.testing.assert_array_equal(still, plain(batch, training=True)["sequence_output"])


def test_weights_that_do_not_fit():
    weights = random_weights(TOY)
    encoder = BertEncoder(TOY)
    with pytest.raises(CheckpointError, match="embeddings/LayerNorm/beta"):
        encoder.load_weights_dict(
            {n: v for n, v in weights.items() if n != "embeddings/LayerNorm/beta"}
        )
    wrong = weights | {"encoder/layer_0/attention/self/key/kernel": np.zeros((8, 9), np.float32)}
    with pytest.raises(CheckpointError, match=r"query/kernel \+ .* is \(8, 25\); .* \(8, 24\)"):
        encoder.load_weights_dict(wrong)
