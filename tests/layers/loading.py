"""Loads a model in a process that made none; see test_models.py."""

import json

import keras
import tensorflow as tf

import bert_features.layers  # noqa: F401 - it tells Keras about both


def load_and_call(path, to):
    """Writes the vectors of a text."""
    vectors = keras.models.load_model(path)(tf.constant(["the a b"]))["mean"]
    to.write_text(json.dumps(vectors.numpy().tolist()))
