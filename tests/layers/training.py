"""Training as torch does it; scripts/make_reference_training.py made its values."""

from pathlib import Path

import keras
import numpy as np

from bert_features import BertFeatures
from tests.toy import TOY, random_batch, random_weights

FOLDER = Path(__file__).parents[1] / "data" / "families" / "bert"


def six_steps():
    """Word embeddings and a kernel after six steps of AdamW: those of Keras and of torch."""
    with np.load(FOLDER / "trained.npz") as stored:
        torchs = dict(stored)
    bert = BertFeatures.from_checkpoint(
        FOLDER, level="sequence", pooling="mean", layers=0, trainable=True, use_dropout=False
    )
    ids = {name: keras.Input((None,), dtype="int32", name=name) for name in bert.input_names}
    model = keras.Model(ids, bert(ids)["features"])
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.01, epsilon=1e-12)
    model.compile(optimizer, "mse", jit_compile=False)
    for words, target in zip(torchs["token_ids"], torchs["targets"], strict=True):
        batch = [words, np.ones_like(words), np.zeros_like(words)]
        model.train_on_batch(dict(zip(bert.input_names, batch, strict=True)), target)
    weights = bert.encoder.weights_dict()
    names = {"words": "embeddings/word_embeddings", "kernel": "encoder/layer_0/output/dense/kernel"}
    return [(weights[name], torchs[key]) for key, name in names.items()]


def recomputed(layers=()):
    """A loss and a kernel after a step with dropout; the layers of these names are computed again.

    Two calls with the same layers, or none, give the same if the masks of dropout are the same.
    """
    keras.utils.set_random_seed(0)
    batch = random_batch(TOY, [9, 4, 1], 9)
    with keras.RematScope("list_of_layers" if layers else None, layer_names=list(layers)):
        bert = BertFeatures(
            TOY, level="sequence", pooling="mean", layers=-1, trainable=True, name="mine"
        )
    bert.encoder.load_weights_dict(random_weights(TOY))
    ids = {name: keras.Input((9,), dtype="int32", name=name) for name in bert.input_names}
    model = keras.Model(ids, bert(ids)["features"])
    model.compile("sgd", "mse", jit_compile=False)
    loss = model.train_on_batch(batch, np.ones((3, TOY.hidden_size)))
    return float(loss), bert.encoder.weights_dict()["encoder/layer_0/output/dense/kernel"]
