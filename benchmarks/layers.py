"""The step of `predict` and of `fit` beside the same architecture made of Keras' own layers.

    .venv/bin/python benchmarks/layers.py                   under three minutes on two quiet cores

Both models have the shape and the weights of the embedded all-MiniLM-L6-v2 (not Google's BERT), the
mean of the tokens and a head of two classes. Their outputs are compared first; if they differ,
nothing is timed. The steps run in turns; medians are printed, and the ratio of each: above 1 the
layer is faster. CPU seconds are disturbed less by other programs on the machine.
"""

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from parts import in_turns

from bert_features import BertFeatures, find_checkpoint

IDS = ("input_word_ids", "input_mask", "input_type_ids")


class Positions(keras.layers.Layer):
    """A row for each place: [B, S, H] -> [1, S, H]."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(number, size)

    def call(self, x: Any) -> Any:
        """The rows of the places of x."""
        return self.table(keras.ops.arange(x.shape[1]))[None]


def plain_encoder(config: Any, ids: dict[str, Any]) -> Any:
    """The last layer [B, S, H], by Keras' own layers, as a user would write it."""
    layers, size = keras.layers, config.hidden_size

    def norm(x: Any) -> Any:
        return layers.LayerNormalization(epsilon=config.layer_norm_eps)(x)

    def dropped(x: Any) -> Any:
        return layers.Dropout(config.hidden_dropout_prob)(x)

    words = layers.Embedding(config.vocab_size, size)(ids["input_word_ids"])
    places = Positions(config.max_position_embeddings, size)(words)
    types = layers.Embedding(config.type_vocab_size, size)(ids["input_type_ids"])
    x = dropped(norm(words + places + types))
    mask = keras.ops.cast(ids["input_mask"], "bool")[:, None, :]
    for _ in range(config.num_hidden_layers):
        attention = layers.MultiHeadAttention(
            config.num_attention_heads,
            config.head_size,
            dropout=config.attention_probs_dropout_prob,
        )
        x = norm(x + dropped(attention(x, x, attention_mask=mask)))
        inner = layers.Dense(config.intermediate_size, lambda y: keras.ops.gelu(y, False))(x)
        x = norm(x + dropped(layers.Dense(size)(inner)))
    return x


def copy_weights(bert: BertFeatures, plain: Any) -> None:
    """Gives the plain model the weights of the layer: both have them in the order of the graph."""
    values, config = bert.encoder.weights_dict(), bert.bert_config
    names = [f"embeddings/{kind}_embeddings" for kind in ("word", "position", "token_type")]
    names += ["embeddings/LayerNorm/gamma", "embeddings/LayerNorm/beta"]
    for i in range(config.num_hidden_layers):
        block = f"encoder/layer_{i}"
        for part in (
            *(f"attention/self/{each}" for each in ("query", "key", "value")),
            "attention/output/dense",
            "attention/output/LayerNorm",
            "intermediate/dense",
            "output/dense",
            "output/LayerNorm",
        ):
            ends = ("gamma", "beta") if part.endswith("LayerNorm") else ("kernel", "bias")
            names += [f"{block}/{part}/{end}" for end in ends]
    weights = [weight for layer in plain.layers for weight in layer.weights][: len(names)]
    for weight, name in zip(weights, names, strict=True):
        weight.assign(values[name].reshape(weight.shape))


def main() -> None:
    """Times both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=16, help="rows of a batch")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row")
    parser.add_argument("--rounds", type=int, default=15, help="timed runs of each step")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = options.rows, options.length
    lengths = rng.integers(options.length // 2, options.length + 1, (options.rows, 1))
    mask = (np.arange(options.length) < lengths).astype(np.int32)
    batch = dict(zip(IDS, (rng.integers(999, 29999, shape) * mask, mask, mask * 0), strict=True))
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    labels = rng.integers(0, 2, options.rows)

    config = find_checkpoint("minilm").config
    bert = BertFeatures.from_checkpoint(
        "minilm", level="sequence", pooling="mean", layers=-1, trainable=True
    )
    ids = {name: keras.Input((options.length,), dtype="int32", name=name) for name in IDS}
    states = plain_encoder(config, ids)
    mean = keras.layers.GlobalAveragePooling1D()(states, mask=ids["input_mask"])
    models = {"BertFeatures": keras.Model(ids, bert(ids)["features"])}
    models["plain layers"] = keras.Model(ids, mean)
    copy_weights(bert, models["plain layers"])
    outputs = [model.predict_on_batch(batch) for model in models.values()]
    difference = np.abs(outputs[0] - outputs[1]).max()
    if difference > 1e-4:
        raise SystemExit(f"the outputs differ by {difference:.2g}; nothing was timed")
    print(f"{options.rows} x {options.length}, outputs differ by {difference:.1g}")
    print("| step | BertFeatures, ms (CPU) | plain layers, ms (CPU) | ratio | of CPU seconds |")
    print("|---|---|---|---|---|")
    trained = {}
    for name, model in models.items():
        head = keras.layers.Dense(2)(model.output)
        trained[name] = keras.Model(model.input, head)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained[name].compile(keras.optimizers.Adam(1e-5), loss)
    steps = {
        "predict": lambda name: lambda: models[name].predict_on_batch(batch),
        "fit": lambda name: lambda: trained[name].train_on_batch(batch, labels),
    }
    for step, run in steps.items():
        times = in_turns({name: run(name) for name in models}, options.rounds)
        ours, theirs = times["BertFeatures"], times["plain layers"]
        cells = [f"{1e3 * each.elapsed:.0f} ({1e3 * each.cpu:.0f})" for each in (ours, theirs)]
        cells += [f"{theirs.elapsed / ours.elapsed:.2f}", f"{theirs.cpu / ours.cpu:.2f}"]
        print(f"| {step} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
