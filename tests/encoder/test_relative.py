"""MPNet's biases by distance: the rows of the table, long rows, rows side by side, gradients."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features.check.reference_encoder import ReferenceEncoder
from bert_features.encoder.forms import traced_for
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.relative import RelativeBias
from tests import families
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights

# The first distance of each bucket, of MPNetEncoder.relative_position_bucket (transformers 5.24).
FIRST = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
CONFIG = families.checkpoint("mpnet").config.model_copy(
    update={"max_position_embeddings": 202, "num_hidden_layers": 2}
)
WEIGHTS = random_weights(CONFIG)


def test_the_rows_of_the_table():
    """Head 0 has the number of the row in each place."""
    bias = RelativeBias(CONFIG, initializer="zeros")
    bias.rows.assign(np.arange(32.0)[:, None] * [1, -1])
    got = np.asarray(bias(np.ones((1, 130), np.int32)))
    before = np.repeat(np.arange(16), np.diff([*FIRST, 130]))
    np.testing.assert_array_equal(got[0, -1], before[::-1])
    np.testing.assert_array_equal(got[0, 0], [0, *before[1:] + 16])
    np.testing.assert_array_equal(got[1], -got[0])
    np.testing.assert_array_equal(got[0, 7:, 7:], got[0, :-7, :-7])


FORMS = [
    ("gpu", {}, 200, None),
    ("cpu", {"row_limit": 0}, 200, None),
    ("cpu", {"few_tokens": True}, 130, None),
    ("tpu", {}, 24, 24),  # five rows side by side
    ("tpu", {}, 160, 160),  # scores are computed twice
]


@pytest.mark.parametrize(("device", "form", "length", "static"), FORMS)
def test_rows_in_which_every_bucket_occurs(device, form, length, static):
    """Of two layers; rows with padding, and, head by head, rows without."""
    encoder = BertEncoder(CONFIG)
    encoder.load_weights_dict(WEIGHTS)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    shape = [5 if static else None, static]
    signature = {name: tf.TensorSpec(shape, tf.int32) for name in names}

    @tf.function(input_signature=[signature], autograph=False)
    def run(batch):
        with traced_for(device, **form):
            return EncoderOutputs.from_dict(encoder(batch)).states

    for lengths in ([length, 9, 17, 2, length - 1], [length] * 5)[: 2 if device == "cpu" else 1]:
        batch = random_batch(CONFIG, lengths, length)
        want = np.stack(NumpyEncoder(CONFIG, WEIGHTS)(*batch.values()))
        real = batch["input_mask"] == 1
        got = np.stack(run(batch))[:, real]
        np.testing.assert_allclose(got, want[:, real], rtol=0, atol=2e-5)


def test_the_reference_of_verify_at_every_distance():
    batch = random_batch(CONFIG, [200], 200)
    want = np.concatenate(NumpyEncoder(CONFIG, WEIGHTS)(*batch.values()))
    got = ReferenceEncoder(CONFIG, WEIGHTS)(batch["input_word_ids"][0])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def test_bfloat16_and_gradients():
    tf.keras.utils.set_random_seed(0)  # dropout may leave the rarest distances without a gradient
    encoder = BertEncoder(CONFIG, use_dropout=True, dtype="mixed_bfloat16")
    encoder.load_weights_dict(WEIGHTS)
    batch = random_batch(CONFIG, [24, 9], 24)
    real = batch["input_mask"] == 1
    want = NumpyEncoder(CONFIG, WEIGHTS)(*batch.values())[-1][real]
    got = tf.cast(encoder(batch)["sequence_output"], tf.float32).numpy()[real]
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert cosine.min() > 0.999
    with tf.GradientTape() as tape:
        states = encoder(batch, training=True)["sequence_output"]
        loss = tf.reduce_sum(tf.boolean_mask(tf.cast(states, tf.float32), real)[:, 0])
    gradient = tape.gradient(loss, encoder.relative.rows.value).numpy()
    used = [*range(12), *range(17, 28)]  # of distances below 24; no key after has distance 0
    assert np.all(gradient[used] != 0)
    assert not np.delete(gradient, used, axis=0).any()
