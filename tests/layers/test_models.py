"""Both layers in one model: strings in, vectors out; training and saving it."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertFeatures, BertTextInput, FeatureExtractor
from tests.cli.forks import call_in_fork
from tests.layers.loading import load_and_call
from tests.layers.sentences import QUESTIONS

IDS = ("input_word_ids", "input_mask", "input_type_ids")
MEAN = {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]}
LAST = {"name": "last", "layers": [-1]}


def test_special_tokens_are_left_out_by_the_ids_of_the_vocabulary(toy):
    layer = BertFeatures.from_checkpoint(toy, [{**MEAN, "special_tokens": False}, LAST])
    text = BertTextInput.from_checkpoint(toy, max_seq_length=8)
    result = layer(text(["the a b"]))  # [CLS] the a b [SEP]
    np.testing.assert_allclose(
        result["mean"], result["last"][:, 1:4].numpy().mean(axis=1), rtol=0, atol=1e-6
    )


def test_mixed_precision_is_close_to_float32(minilm_dir):
    batch = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=16)(QUESTIONS[:8])
    second = {**LAST, "layers": [1]}
    exact, *narrow = (
        BertFeatures.from_checkpoint(minilm_dir, [second], dtype=policy)(batch)["last"].numpy()
        for policy in ("float32", "mixed_bfloat16", "mixed_float16")
    )
    for mixed in narrow:
        norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(mixed, axis=-1)
        cosines = (exact * mixed).sum(-1) / norms
        assert cosines[batch["input_mask"] > 0].min() >= 0.999
        assert np.abs(exact - mixed).max() > 1e-4  # it was another arithmetic indeed


# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_keras_file_needs_neither_checkpoint_nor_vocabulary(toy, tmp_path):
    path, texts = tmp_path / "model.keras", tf.constant(["is this jacksonville ?", "the a b"])
    gone = shutil.copytree(toy, tmp_path / "uncased_gone")
    text = BertTextInput.from_checkpoint(gone, max_seq_length=12, tokens_lost=True)
    bert = BertFeatures.from_checkpoint(gone, [MEAN, LAST])
    inputs = keras.Input((), dtype="string")
    ids = text(inputs)
    features = bert({name: ids[name] for name in IDS})
    head = keras.layers.Dense(2)(features["mean"])
    model = keras.Model(inputs, {**features, "head": head, "lost": ids["tokens_lost"]})
    model.save(path)
    expected = model(texts)
    shutil.rmtree(gone)
    loaded = keras.models.load_model(path)
    result = loaded(texts)
    assert result.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(result[name], values, rtol=0, atol=1e-6)
    (bert,) = (layer for layer in loaded.layers if isinstance(layer, BertFeatures))
    assert not bert.trainable_weights


@pytest.mark.slow
def test_strings_in_vectors_out(minilm_dir):
    output = {**MEAN, "normalize": True, "layers": [1]}
    texts = [*QUESTIONS[:4], "naïve … café"]
    inputs = keras.Input((), dtype="string")
    ids = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=32)(inputs)
    model = keras.Model(inputs, BertFeatures.from_checkpoint(minilm_dir, [output])(ids))
    result = model.predict(tf.constant(texts), verbose=0)["mean"]
    extractor = FeatureExtractor.from_checkpoint(
        minilm_dir, outputs=[output], max_seq_length=32, device="cpu"
    )
    expected = [record.features["mean"] for record in extractor(texts)]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_a_saved_model_loads_in_a_process_that_imports_the_layers(toy, tmp_path):
    path = tmp_path / "model.keras"
    inputs = keras.Input((), dtype="string")
    ids = BertTextInput.from_checkpoint(toy, max_seq_length=12)(inputs)
    model = keras.Model(inputs, BertFeatures.from_checkpoint(toy, [MEAN])(ids))
    model.save(path)
    call_in_fork(load_and_call, path, tmp_path / "vectors.json")
    vectors = json.loads((tmp_path / "vectors.json").read_text())
    np.testing.assert_allclose(vectors, model(tf.constant(["the a b"]))["mean"], rtol=0, atol=1e-6)
