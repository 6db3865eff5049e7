"""The encoder against float64 NumPy: every layer, every option that changes the arithmetic."""

import keras
import numpy as np
import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.config.bert_config import BertConfig
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


@pytest.mark.slow
def test_random_weights_at_the_width_of_bert_base():
    config = BertConfig(vocab_size=1000, num_hidden_layers=2)
    weights = random_weights(config, scale=0.04)
    assert_states_equal_reference(config, weights, random_batch(config, [24, 9], 24))


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


@pytest.mark.slow
def test_bfloat16_keeps_the_direction(minilm_dir):
    checkpoint = find_checkpoint(minilm_dir)
    weights = read_weights(checkpoint)
    batch = random_batch(checkpoint.config, [30, 13], 30)
    encoder = make(checkpoint.config, weights, dtype="mixed_bfloat16")
    assert encoder.compute_dtype == "bfloat16"
    outputs = encoder(batch)["encoder_outputs"]
    expected = reference_states(checkpoint.config, weights, batch)[1:]
    real = batch["input_mask"] == 1
    for got, want in zip(outputs, expected, strict=True):
        assert keras.backend.standardize_dtype(got.dtype) == "bfloat16"
        a, b = np.asarray(keras.ops.cast(got, "float32"), np.float64)[real], want[real]
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.999


def test_rows_without_any_token_stay_finite():
    batch = random_batch(TOY, [4, 0], 4)
    outputs = make(TOY, random_weights(TOY))(batch)
    assert np.isfinite(np.asarray(outputs["sequence_output"])).all()


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


def test_the_symbolic_outputs_are_those_of_the_call():
    inputs = {
        name: keras.KerasTensor((2, 6), "int32")
        for name in ("input_word_ids", "input_mask", "input_type_ids")
    }
    encoder = make(TOY, random_weights(TOY), with_pooler=True)
    spec = encoder.compute_output_spec(inputs)
    outputs = encoder(random_batch(TOY, [6, 3], 6))
    assert spec.keys() == outputs.keys()
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert spec[name].shape == tuple(outputs[name].shape), name
    assert len(spec["encoder_outputs"]) == 3


def test_weights_that_do_not_fit():
    weights = random_weights(TOY)
    encoder = BertEncoder(TOY)
    with pytest.raises(CheckpointError, match=r"weights lack embeddings/LayerNorm/beta"):
        encoder.load_weights_dict(
            {n: v for n, v in weights.items() if n != "embeddings/LayerNorm/beta"}
        )
    wrong = weights | {"encoder/layer_0/attention/self/key/kernel": np.zeros((8, 9), np.float32)}
    with pytest.raises(CheckpointError, match=r"query/kernel \+ .* is \(8, 25\); .* \(8, 24\)"):
        encoder.load_weights_dict(wrong)
