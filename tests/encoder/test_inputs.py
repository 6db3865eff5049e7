"""The check of inputs, in calls of both layers that take ids."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertEncoder, BertFeatures
from bert_features.errors import ConfigError
from tests.toy import TOY, random_batch

S = 9
BATCH = random_batch(TOY, [9, 4, 1], S)
IDS, MASK, TYPES = BATCH


def every(make):
    return {name: make(ids) for name, ids in BATCH.items()}


@pytest.fixture(scope="module", params=["features", "encoder"])
def layer(request):
    if request.param == "encoder":
        return BertEncoder(TOY)
    return BertFeatures(TOY, [{"name": "last", "layers": [-1]}])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({IDS: BATCH[IDS], MASK: BATCH[MASK]}, "the inputs lack input_type_ids"),
        (BATCH[IDS], "the inputs are ndarray"),
        (every(lambda ids: ids.astype(np.float32)), "input_word_ids is float32; allowed: int"),
        (every(lambda ids: keras.Input((S,))), r"keras.Input\(\(S,\), dtype='int32'"),
        (every(lambda ids: ids[0]), r"input_word_ids has shape \(9,\); allowed: \[B, S\]"),
        (every(lambda ids: ids[:, :0]), r"input_word_ids has shape \(3, 0\); .* S at least 1"),
        (every(lambda ids: np.ones((2, 25), int)), "25 tokens; this model allows at most 24"),
        ({MASK: BATCH[MASK].T}, r"input_mask has shape \(9, 3\) and input_word_ids \(3, 9\)"),
        ({TYPES: BATCH[TYPES][:, 1:]}, r"input_type_ids has shape \(3, 8\) and input_word_ids"),
        ({MASK: keras.Input((8,), dtype="int32")}, r"input_mask has shape \(None, 8\)"),
        ({MASK: (BATCH[MASK] - 1) * 10000}, r"input_mask has -10000; .*\(1 for tokens and 0 for"),
        ({MASK: (BATCH[MASK] - 1.0) * 1e4}, "input_mask is float64; .*; 1 or True for tokens"),
        ({IDS: BATCH[IDS] > 0}, "input_word_ids is bool"),
        ({IDS: -BATCH[IDS]}, r"input_word_ids has -28; allowed: 0 to 29 \(the ids of the voc"),
        ({IDS: tf.constant(BATCH[IDS]) + 40000}, "input_word_ids has 40028; allowed: 0 to 29"),
        ({TYPES: BATCH[TYPES] + 1}, r"input_type_ids has 2; allowed: 0 to 1 \(this bert has 2\)"),
        ({IDS: tf.ragged.constant([[1], [2, 3]])}, r"a RaggedTensor; pass input_word_ids.to_tens"),
        ({IDS: tf.sparse.from_dense(BATCH[IDS])}, r"a SparseTensor; pass tf.sparse.to_dense\(inpu"),
        ({IDS: [[1], [2, 3]]}, "input_word_ids has rows of different lengths; pad them"),
        ({IDS: None}, "input_word_ids is object"),
    ],
)
def test_what_is_refused(layer, inputs, message):
    if isinstance(inputs, dict) and len(inputs) == 1:
        inputs = BATCH | inputs
    with pytest.raises(ConfigError, match=message):
        layer(inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        every(lambda ids: ids.astype(np.int64)),
        every(lambda ids: ids.tolist()),
        {**BATCH, MASK: BATCH[MASK] == 1},
        {**BATCH, IDS: tf.constant(BATCH[IDS]), "texts": ["a", "b", "c"]},
    ],
    ids=["int64", "lists", "bool", "mixed"],
)
def test_what_means_the_same(layer, inputs):
    found, wanted = (keras.tree.flatten(layer(each)) for each in (inputs, BATCH))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_takes_keras_own_masks(layer):
    ids = {name: keras.Input((S,), dtype="int32", name=name) for name in (IDS, TYPES)}
    ids[MASK] = keras.Input((S,), dtype="bool", name=MASK)
    found = keras.Model(ids, layer(ids)).predict({**BATCH, MASK: BATCH[MASK] == 1}, verbose=0)
    for one, other in zip(*map(keras.tree.flatten, (found, layer(BATCH))), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_negative_ids_are_refused_in_graphs_on_a_cpu():
    """A gather there refuses what names no row; Keras' own would count from the end."""
    run = tf.function(BertEncoder(TOY), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"= -\d+ is not in \[0, 30\)"):
        run({**BATCH, IDS: tf.constant(-BATCH[IDS])})
