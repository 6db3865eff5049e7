"""The gradients of every pooling where rows, words and spans are empty; for either backend."""

from dataclasses import replace
from typing import get_args

import keras
import numpy as np
from keras import ops

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import Combine, OutputConfig
from bert_features.config.poolings import POOLINGS, DenseModule
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.pooling import compute_outputs
from tests.toy import TOY, random_batch

S, H = 6, TOY.hidden_size
BATCH = {  # the second row only fills the batch up
    **random_batch(TOY, [5, 0], S),
    "word_indices": np.array([[-1, 0, 0, 1, -1, -1], [-1] * S], np.int32),
    "span_begins": np.array([[1, 2] + [-1] * 4, [-1] * S], np.int32),
    "span_ends": np.array([[4, 3] + [-1] * 4, [-1] * S], np.int32),
}
_DENSE = DenseModule("2_Dense", H, 3, "tanh", has_bias=False)
WEIGHTS = {"sentence/2_Dense/kernel": np.ones((H, 3), np.float32) * 0.5}


def _outputs():
    """Every pooling scaled to length 1, then every way to combine layers, and a Dense module."""
    poolings = [
        {"level": level, "pooling": pooling, "layers": [-1]}
        for level in POOLINGS
        for pooling in POOLINGS[level]
    ]
    sums = {"level": "word", "pooling": "sum"}
    combined = [
        {**sums, "layers": [-1, 0], "combine": how} for how in get_args(Combine) if how != "none"
    ]
    combined[-1]["weights"] = [0.5, -2.0]
    settings = [
        {"name": f"o{i}", "normalize": True, **each} for i, each in enumerate(poolings + combined)
    ]
    specs = plan_outputs([OutputConfig.of(each) for each in settings], TOY)
    return [*specs, replace(specs[-1], name="dense", width=3, modules=(_DENSE,))]


def loss(*states):
    """Of four states [2, S, H] and a pooled output [2, H], with ids of which one is special."""
    encoded = EncoderOutputs(states[0], states[1:4], states[4]).as_dict()
    batch = {name: ops.convert_to_tensor(values) for name, values in BATCH.items()}
    results = compute_outputs(
        encoded,
        batch,
        _outputs(),
        (int(BATCH["input_word_ids"][0, 0]),),
        {name: ops.convert_to_tensor(value) for name, value in WEIGHTS.items()},
    )
    return sum(ops.sum(ops.sin(values)) for values in results.values())


def states():
    """Random ones, also of padding."""
    rng = np.random.default_rng(0)
    shapes = [(2, S, H)] * 4 + [(2, H)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def gradients(jit_compile=False):
    """Those of the loss, as arrays, by the backend of Keras."""
    given = [ops.convert_to_tensor(state) for state in states()]
    if keras.backend.backend() == "jax":
        import jax

        return [np.asarray(each) for each in jax.grad(loss, argnums=tuple(range(5)))(*given)]
    import tensorflow as tf

    @tf.function(jit_compile=jit_compile, autograph=False)
    def compute():
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = loss(*given)
        return tape.gradient(value, given, unconnected_gradients="zero")

    return [each.numpy() for each in compute()]
