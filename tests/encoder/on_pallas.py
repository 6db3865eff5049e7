"""Run by test_pallas_attention.py in a process of its own, where Keras runs on JAX.

Argument: a folder of batches; the states of each come beside it, for every form and precision.
Pallas's interpreter runs the kernel as operations of XLA, and fills what nobody has written with
NaN. Its interpreter for TPUs can wait forever on a machine with two cores.
"""

import functools
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import pallas

from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.runtime.jax import shared_out, traced_for_jax
from tests.encoder.test_pallas_attention import CONFIG, DEVICES, FORMS, LENGTHS
from tests.toy import random_weights


def main():
    folder = Path(sys.argv[1])
    pallas.pallas_call = functools.partial(pallas.pallas_call, interpret=True)
    for precision, lengths in LENGTHS.items():
        encoder = BertEncoder(CONFIG, dtype=precision, initializer="zeros")
        encoder.load_weights_dict(random_weights(CONFIG))
        for attention in FORMS:
            for length in lengths:
                states = compute(encoder, attention, dict(np.load(folder / f"{length}.npz")))
                np.save(folder / f"{attention}-{precision}-{length}.npy", states)


def compute(encoder, attention, batch):
    """The states of a batch, float32 [K, B, S, H]."""
    weights = [variable.value for variable in encoder.trainable_variables]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("data",))

    def step(weights, batch):
        with traced_for_jax("tpu", attention):
            encoded, _ = encoder.stateless_call(weights, [], batch)
        return dict(enumerate(EncoderOutputs.from_dict(encoded).states))

    states = jax.jit(shared_out(step, mesh))(weights, batch)
    return np.stack([np.asarray(states[i], np.float32) for i in range(len(states))])


if __name__ == "__main__":
    main()
