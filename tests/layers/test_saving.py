"""Models with the layers inside compute the same after saving and loading, whatever their kind."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertEncoder, BertFeatures, BertTextInput
from bert_features.config.poolings import DenseModule
from bert_features.errors import ConfigError
from tests.layers import saving
from tests.toy import TOY, TOY_VOCAB

# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implem:DeprecationWarning")


def fit(model, batch):
    model.compile("adam", keras.losses.MeanSquaredError(), run_eagerly=True)
    model.train_on_batch(batch, np.ones((2 if tf.is_tensor(batch) else 3, 2)))


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("strings", [False, True], ids=["ids", "strings"])
@pytest.mark.parametrize("kind", saving.KINDS)
def test_loaded_models_compute_what_was_saved(tmp_path, kind, strings):
    batch = tf.constant(saving.TEXTS) if strings else saving.IDS
    trained = fit if strings or kind == "functional" else None
    found = saving.differences(kind, batch, tmp_path, strings=strings, fit=trained)
    forms = [".keras", *[".h5"] * ((kind, strings) in saving.H5), *["weights"] * (not strings)]
    assert found == dict.fromkeys(forms, 0.0)


def test_floats_are_still_refused_in_a_traced_call():
    """Only what Keras calls to build a model is let through."""
    layer = BertFeatures(TOY, [saving.MEAN])
    floats = {name: tf.cast(ids, tf.float32) for name, ids in saving.IDS.items()}
    with pytest.raises(ConfigError, match="ids is float32"):
        tf.function(layer, autograph=False)(floats)


def test_symbols_of_keras_2_are_refused():
    """As with TF_USE_LEGACY_KERAS=1."""
    import tf_keras

    ids = {name: tf_keras.Input((9,), dtype="int32") for name in saving.IDS}
    for layer, inputs in (
        (BertFeatures(TOY, [saving.MEAN]), ids),
        (BertTextInput(TOY_VOCAB), tf_keras.Input((), dtype="string")),
    ):
        with pytest.raises(ConfigError, match="symbols of tf_keras"):
            layer(inputs)


AUTO = {"pooling": "mean", "modules": [DenseModule("2_Dense", 8, 3, "tanh", has_bias=True)]}


@pytest.mark.parametrize(
    "layer",
    [
        lambda: BertFeatures(TOY, level="sequence", pooling="auto", auto=AUTO, trainable=True),
        lambda: BertEncoder(TOY, with_pooler=True, fuse_qkv=False),
    ],
    ids=["features", "encoder"],
)
def test_checkpoints_of_tensorflow_restore_every_weight(tmp_path, layer):
    first, second = layer(), layer()
    for weight in first.weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape))
    path = tf.train.Checkpoint(model=first).save(tmp_path / "model")
    tf.train.Checkpoint(model=second).restore(path).assert_consumed()
    for got, wanted in zip(second.weights, first.weights, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=got.path)


def test_each_weight_has_its_own_path():
    paths = [weight.path for weight in BertFeatures(TOY, [saving.MEAN], name="mine").weights]
    assert len(set(paths)) == len(paths)
    assert "mine/bert/layer_0/attention/output_dense/kernel" in paths
