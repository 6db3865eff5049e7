"""Both layers in one model: strings in, vectors out; training and saving it."""

import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertFeatures, BertTextInput, FeatureExtractor
from tests.layers.sentences import QUESTIONS, STATEMENTS

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
    exact, *narrow = (
        BertFeatures.from_checkpoint(minilm_dir, [LAST], dtype=policy)(batch)["last"].numpy()
        for policy in ("float32", "mixed_bfloat16", "mixed_float16")
    )
    for mixed in narrow:
        norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(mixed, axis=-1)
        cosines = (exact * mixed).sum(-1) / norms
        assert cosines[batch["input_mask"] > 0].min() >= 0.999
        assert np.abs(exact - mixed).max() > 1e-4  # it was another arithmetic indeed


@pytest.mark.slow
def test_a_classifier_learns_questions_from_statements(minilm_dir):
    """Without punctuation, so that the words have to tell; each question has a statement of the
    same topic, and a third of these pairs is held out. A middle layer knows most of syntax.
    """
    text = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=16)
    labels = np.array([1] * len(QUESTIONS) + [0] * len(STATEMENTS))
    held = np.arange(len(labels)) % len(QUESTIONS) % 3 == 0
    all_texts = np.array(QUESTIONS + STATEMENTS)

    def dataset(mask):
        pairs = tf.data.Dataset.from_tensor_slices((all_texts[mask], labels[mask]))
        shuffled = pairs.shuffle(len(labels), seed=0)
        return shuffled.batch(9).map(lambda texts, label: (text(texts), label))

    inputs = {name: keras.Input((16,), dtype="int32", name=name) for name in IDS}
    features = BertFeatures.from_checkpoint(minilm_dir, [{**MEAN, "layers": [-4]}])(inputs)["mean"]
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(features))
    keras.utils.set_random_seed(0)
    model.compile(
        keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"], jit_compile=False
    )
    _, before = model.evaluate(dataset(held), verbose=0)
    model.fit(dataset(~held), epochs=8, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(dataset(held), verbose=0)
    print(f"held-out accuracy: {before:.2f} before, {accuracy:.2f} after")
    assert accuracy >= 0.85


# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_keras_file_needs_neither_checkpoint_nor_vocabulary(toy, tmp_path):
    path, texts = tmp_path / "model.keras", ["is this jacksonville ?", "the a b"]
    gone = shutil.copytree(toy, tmp_path / "uncased_gone")
    text = BertTextInput.from_checkpoint(gone, max_seq_length=12, tokens_lost=True)
    bert = BertFeatures.from_checkpoint(gone, [MEAN, LAST])
    inputs = keras.Input((), dtype="string")
    ids = text(inputs)
    features = bert({name: ids[name] for name in IDS})
    head = keras.layers.Dense(2)(features["mean"])
    model = keras.Model(inputs, {**features, "head": head, "lost": ids["tokens_lost"]})
    model.save(path)
    np.savez(tmp_path / "expected.npz", **model.predict(tf.constant(texts), verbose=0))
    shutil.rmtree(gone)
    script = (
        "import sys, numpy as np, tensorflow as tf, keras, bert_features\n"
        "bert_features.BertFeatures\n"
        f"model = keras.models.load_model({str(path)!r})\n"
        f"result = model.predict(tf.constant({texts!r}), verbose=0)\n"
        f"expected = np.load({str(tmp_path / 'expected.npz')!r})\n"
        "assert result.keys() == set(expected.files), result.keys()\n"
        "for name in expected.files:\n"
        "    np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=1e-6)\n"
        "bert = next(l for l in model.layers if isinstance(l, bert_features.BertFeatures))\n"
        "assert not bert.trainable_weights\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_strings_in_vectors_out(minilm_dir):
    output = {**MEAN, "normalize": True}
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
