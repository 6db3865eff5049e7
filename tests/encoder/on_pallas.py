"""Run by test_pallas_attention.py in a process of its own, where Keras runs on JAX.

Arguments: a form of attention, a dtype, and a folder of batches; the states of each come beside it.
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
from tests.encoder.test_pallas_attention import CONFIG, DEVICES
from tests.toy import random_weights


def main():
    attention, precision, folder = sys.argv[1:]
    encoder = BertEncoder(CONFIG, dtype=precision)
    encoder.load_weights_dict(random_weights(CONFIG))
    weights = [variable.value for variable in encoder.trainable_variables]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("data",))

    def step(weights, batch):
        with traced_for_jax("tpu", attention):
            encoded, _ = encoder.stateless_call(weights, [], batch)
        return dict(enumerate(EncoderOutputs.from_dict(encoded).states))

    pallas.pallas_call = functools.partial(pallas.pallas_call, interpret=True)
    for path in Path(folder).glob("batch-*.npz"):
        states = jax.jit(shared_out(step, mesh))(weights, dict(np.load(path)))
        stacked = np.stack([np.asarray(states[i], np.float32) for i in range(len(states))])
        np.save(path.with_suffix(".npy"), stacked)


if __name__ == "__main__":
    main()
