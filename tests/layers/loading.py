"""Loads a model in a process that names no layer; see test_models.py."""

import json
import sys

import keras
import tensorflow as tf

import bert_features  # noqa: F401 - it tells Keras about its layers


def load_and_call(path, to):
    """Writes the layers' modules that were imported before, and the vectors of a text."""
    before = [name for name in sys.modules if "bert_features.la" in name]
    vectors = keras.models.load_model(path)(tf.constant(["the a b"]))["mean"]
    to.write_text(json.dumps([before, vectors.numpy().tolist()]))
