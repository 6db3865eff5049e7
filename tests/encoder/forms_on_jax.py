"""Run by test_forms_on_jax.py in a process of its own, where Keras runs on JAX.

Argument: a folder of batches; the states of each come beside it, for every form and precision, and
the outputs of packed batches. The kernel of GPUs has a stand-in in XLA, which JAX brings.
"""

import sys
from pathlib import Path

import jax
import numpy as np

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.step import DeviceStep
from bert_features.runtime.jax import shared_out, traced_for_jax
from tests import families
from tests.encoder import test_attention_forms as forms
from tests.encoder.test_forms_on_jax import CONFIG, DEVICES, EDGES, FAMILIES, LENGTHS, PACKED
from tests.packed import CLS, OUTPUTS, SEP
from tests.toy import random_weights


def main():
    folder = Path(sys.argv[1])
    seen = []

    def as_xla(query, *others, **settings):
        assert settings.pop("implementation") == "cudnn"
        seen.append(f"{query.shape[1]} {query.dtype}")
        return attend(query, *others, implementation="xla", **settings)

    attend, jax.nn.dot_product_attention = jax.nn.dot_product_attention, as_xla
    for precision, kinds in LENGTHS.items():
        encoder = BertEncoder(CONFIG, dtype=precision, initializer="zeros")
        encoder.load_weights_dict(random_weights(CONFIG))
        for form, lengths in kinds.items():
            for length in lengths:
                batch = dict(np.load(folder / f"{length}.npz"))
                states = compute(encoder, batch, form)
                np.save(folder / f"{form}-{precision}-{length}.npy", states)
    for name, kind in FAMILIES:
        encoder = BertEncoder(families.checkpoint(name).config, initializer="zeros")
        encoder.load_weights_dict(families.weights(name))
        batch = families.packed_batch(name) if kind == "packed" else families.batch(name)
        np.save(folder / f"{name}-{kind}.npy", compute(encoder, batch))
    for form, window, kind, length in EDGES:
        batch, _ = forms.BATCHES[kind](window, length)
        states = compute(forms.encoder_of(window), batch, form)
        np.save(folder / f"edges-{form}-{window}-{kind}-{length}.npy", states)
    for name, case in PACKED.items():
        batch = dict(np.load(folder / f"{name}.npz"))
        np.savez(folder / f"{name}-outputs.npz", **compute_packed(batch, **case))
    (folder / "fused.txt").write_text(", ".join(seen))


def compute(encoder, batch, form="tpu"):
    """The states of a batch, float32 [K, B, S, H], in a form."""

    def step(weights, batch):
        encoded, _ = encoder.stateless_call(weights, [], batch)
        return dict(enumerate(EncoderOutputs.from_dict(encoded).states))

    states = on_all(step, encoder.trainable_variables, batch, form)
    return np.stack([states[i] for i in range(len(states))])


def compute_packed(batch, *, rows, length, outputs, precision, form):
    """Outputs of a packed batch, by name."""
    del rows, length
    settings = [OutputConfig.of({"name": name, **OUTPUTS[name]}) for name in outputs]
    model = DeviceStep(
        CONFIG,
        random_weights(CONFIG),
        plan_outputs(settings, CONFIG),
        special_ids=(CLS, SEP),
        precision=precision,
        packed=True,
    )
    inputs = {name: batch[name] for name in model.inputs}
    return on_all(model.step, model.weights, inputs, form)


def on_all(step, weights, batch, form):
    """The outputs of a step on all devices, traced for `tpu`, `gpu` or a `fused` GPU; float32."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("data",))

    def run(weights, batch):
        with traced_for_jax("tpu" if form == "tpu" else "gpu", fused=form == "fused"):
            return step(weights, batch)

    outputs = jax.jit(shared_out(run, mesh))([weight.value for weight in weights], batch)
    return {name: np.asarray(values, np.float32) for name, values in outputs.items()}


if __name__ == "__main__":
    main()
