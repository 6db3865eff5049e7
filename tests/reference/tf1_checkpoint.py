"""Writes TF1 checkpoints and safetensors files for tests, by the libraries' own writers."""

import json

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from bert_features.checkpoints.weights import weight_names


def write_tf1_checkpoint(prefix, weights, *, scope="bert/", extra=None):
    """A TF1 checkpoint as google-research/bert's Saver writes it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = {f"{scope}{name}": value for name, value in weights.items()} | (extra or {})
        variables = [
            tf.compat.v1.Variable(value, name=name, use_resource=False)
            for name, value in tensors.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(prefix), write_state=False)
    return prefix


def huggingface_weights(weights, config, *, pooler=True):
    """The same weights under Hugging Face's names and in its layout."""
    return {
        row.huggingface: np.ascontiguousarray(
            weights[row.canonical].T if row.transposed else weights[row.canonical]
        )
        for row in weight_names.weights(config, pooler=pooler)
    }


def write_directory(folder, config, vocab, weights=None, *, kind="safetensors", **settings):
    """A directory as a user has it: weights, config, vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    values = config.model_dump() | {"hidden_act": "gelu"}
    if kind == "tf1":
        (folder / "bert_config.json").write_text(json.dumps(values))
        write_tf1_checkpoint(folder / "bert_model.ckpt", weights, **settings)
    else:
        (folder / "config.json").write_text(json.dumps(values | {"model_type": "bert"}))
        save_file(huggingface_weights(weights, config, **settings), folder / "model.safetensors")
    return folder
