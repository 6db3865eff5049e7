"""Checkpoints of fine-tuned models: features of each, its head skipped and listed."""

import keras
import numpy as np
import pytest

from bert_features import BertFeatures, FeatureExtractor
from bert_features.errors import ConfigError, OutputError
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

WEIGHTS = random_weights(TOY)
TEXT = "the jackson is no b"
IDS = np.array([[2, 15, 7, 8, 5, 11, 17, 3]])
MASK, TYPES = np.ones_like(IDS), np.zeros_like(IDS)


def assert_features(folder, weights, *, config=TOY):
    """Every layer and the pooled [CLS] of a text by the NumPy encoder."""
    layers = [{"name": f"l{i}", "layers": [i]} for i in range(config.num_hidden_layers)]
    pooled = {"name": "pooled", "level": "sequence", "pooling": "pooler"}
    extractor = FeatureExtractor.from_checkpoint(folder, outputs=[*layers, pooled])
    (record,) = extractor([TEXT])
    assert record.token_ids.tolist() == IDS[0].tolist()
    states = NumpyEncoder(config, weights)(IDS, MASK, TYPES)
    for i, state in enumerate(states[1:]):
        np.testing.assert_allclose(record.features[f"l{i}"], state[0], rtol=0, atol=2e-5)
    kernel, bias = (weights[f"pooler/dense/{part}"] for part in ("kernel", "bias"))
    wanted = np.tanh(states[-1][0, 0] @ kernel + bias)
    np.testing.assert_allclose(record.features["pooled"], wanted, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A toy checkpoint, and a layer of it after a step of training."""
    source = write_directory(tmp_path_factory.mktemp("toy") / "uncased", TOY, TOY_VOCAB, WEIGHTS)
    output = {"name": "pooled", "level": "sequence", "pooling": "pooler"}
    layer = BertFeatures.from_checkpoint(source, [output], trainable=True)
    inputs = {name: keras.Input((8,), dtype="int32", name=name) for name in layer.input_names}
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)["pooled"]))
    model.compile(keras.optimizers.SGD(0.5), "mse")
    batch = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}
    model.fit(batch, np.array([[1.0]]), verbose=0)
    return source, layer


def test_a_layer_that_was_trained(trained, tmp_path):
    source, layer = trained
    folder = layer.save_checkpoint(tmp_path / "tuned", source)
    config = TOY.model_copy(update={"hidden_act": "gelu_erf"})
    weights = layer.encoder.weights_dict()
    moved = [name for name in weights if not np.array_equal(weights[name], WEIGHTS[name])]
    assert "pooler/dense/kernel" in moved
    assert "encoder/layer_0/attention/self/query/kernel" in moved
    assert_features(folder, weights, config=config)
    with pytest.raises(OutputError, match="tuned exists"):
        layer.save_checkpoint(folder, source)
    layer.save_checkpoint(folder, source, overwrite=True)


def test_a_layer_of_fewer_blocks(trained, tmp_path):
    """What it does not compute is not in its checkpoint."""
    layer = BertFeatures.from_checkpoint(trained[0], [{"name": "second", "layers": [1]}])
    extractor = FeatureExtractor.from_checkpoint(
        layer.save_checkpoint(tmp_path / "two", trained[0]), layers=-1
    )
    assert extractor.checkpoint.config.num_hidden_layers == 2
    states = NumpyEncoder(extractor.checkpoint.config, WEIGHTS)(IDS, MASK, TYPES)
    np.testing.assert_allclose(extractor.encode(TEXT), states[2][0], rtol=0, atol=2e-5)
    nothing = BertFeatures.from_checkpoint(trained[0], layers=["embeddings"])
    with pytest.raises(ConfigError, match="this layer has 0 blocks, which is no checkpoint"):
        nothing.save_checkpoint(tmp_path / "none", trained[0])


@pytest.mark.parametrize("family", ["albert", "modernbert"])
def test_a_part_that_is_no_checkpoint_is_refused(data, tmp_path, family):
    """ModernBERT ends with a norm, and two groups of ALBERT share the layers."""
    layer = BertFeatures.from_checkpoint(data / "families" / family, layers=[0])
    with pytest.raises(ConfigError, match=r"has 1 of \d layers.*; add an output of layer -1"):
        layer.save_checkpoint(tmp_path / "part", data / "families" / family)
    assert not (tmp_path / "part").exists()
