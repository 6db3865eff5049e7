"""Run by test_pallas_attention.py in a process of its own, where Keras runs on JAX.

Argument: a folder of batches; the states of each come beside it, for every form and precision, and
the outputs of packed batches.
Pallas's interpreter runs the kernel as operations of XLA, and fills what nobody has written with
NaN. Its interpreter for TPUs can wait forever on a machine with two cores. The kernel of GPUs has a
stand-in in XLA, which JAX brings.
"""

import functools
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import pallas

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.step import DeviceStep
from bert_features.runtime.jax import shared_out, traced_for_jax
from tests import families
from tests.encoder import test_attention_forms as forms
from tests.encoder.test_pallas_attention import (
    CONFIG,
    DEVICES,
    EDGES,
    FAMILIES,
    LENGTHS,
    PACKED,
    WINDOWED,
    windowed,
)
from tests.packed import CLS, OUTPUTS, SEP
from tests.toy import random_weights


def main():
    folder = Path(sys.argv[1])
    pallas.pallas_call = functools.partial(interpret, pallas.pallas_call)
    seen = []

    def as_xla(query, *others, **settings):
        assert settings.pop("implementation") == "cudnn"
        seen.append(f"{query.shape[1]} {query.dtype}")
        return attend(query, *others, implementation="xla", **settings)

    attend, jax.nn.dot_product_attention = jax.nn.dot_product_attention, as_xla
    for precision, kinds in LENGTHS.items():
        encoder = BertEncoder(CONFIG, dtype=precision, initializer="zeros")
        encoder.load_weights_dict(random_weights(CONFIG))
        for attention, lengths in kinds.items():
            for length in lengths:
                batch = dict(np.load(folder / f"{length}.npz"))
                device = "gpu" if attention == "fused" else "tpu"
                states = compute(encoder, attention, batch, device)
                np.save(folder / f"{attention}-{precision}-{length}.npy", states)
    for name, kind, attention in FAMILIES:
        encoder = BertEncoder(families.checkpoint(name).config, initializer="zeros")
        encoder.load_weights_dict(families.weights(name))
        batch = families.packed_batch(name) if kind == "packed" else families.batch(name)
        np.save(folder / f"{name}-{kind}-{attention}.npy", compute(encoder, attention, batch))
    for kind in WINDOWED:  # by ModernBERT, the last of the families
        batch, _ = windowed(kind)
        np.save(folder / f"windowed-{kind}.npy", compute(encoder, "pallas", batch))
    for name, window, kind, length in EDGES:
        batch, _ = forms.BATCHES[kind](window, length)
        device, _, attention = name.partition(" ")
        states = compute(forms.encoder_of(window), attention or "xla", batch, device)
        np.save(folder / f"edges-{name}-{window}-{kind}-{length}.npy", states)
    for name, case in PACKED.items():
        batch = dict(np.load(folder / f"{name}.npz"))
        np.savez(folder / f"{name}-outputs.npz", **compute_packed(batch, **case))
    (folder / "fused.txt").write_text(", ".join(seen))


def interpret(pallas_call, kernel, *, grid_spec, out_shape, **options):
    """A call of the interpreter, which moves a block outside its array inside; a TPU does not."""
    call = pallas_call(kernel, grid_spec=grid_spec, out_shape=out_shape, interpret=True, **options)

    def run(*arrays):
        inputs = zip(grid_spec.in_specs, arrays[grid_spec.num_scalar_prefetch :], strict=True)
        for spec, array in [*inputs, (grid_spec.out_specs, out_shape)]:
            for place in itertools.product(*({0, steps - 1} for steps in grid_spec.grid)):
                blocks = zip(spec.index_map(*place), spec.block_shape, array.shape, strict=True)
                for index, block, size in blocks:
                    start = index * (block if isinstance(block, int) else 1)
                    assert 0 <= start < size, (spec, array.shape, place)
        return call(*arrays)

    return run


def compute(encoder, attention, batch, device="tpu"):
    """The states of a batch, float32 [K, B, S, H], in a form for a device."""

    def step(weights, batch):
        encoded, _ = encoder.stateless_call(weights, [], batch)
        return dict(enumerate(EncoderOutputs.from_dict(encoded).states))

    states = on_all(step, encoder.trainable_variables, batch, device, attention)
    return np.stack([states[i] for i in range(len(states))])


def compute_packed(batch, *, rows, length, outputs, precision, device, attention):
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
    return on_all(model.step, model.weights, inputs, device, attention)


def on_all(step, weights, batch, device, attention):
    """The outputs of a step on all devices, traced in the forms for a device; float32."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("data",))

    def run(weights, batch):
        with traced_for_jax(device, attention, fused=attention == "fused"):
            return step(weights, batch)

    outputs = jax.jit(shared_out(run, mesh))([weight.value for weight in weights], batch)
    return {name: np.asarray(values, np.float32) for name, values in outputs.items()}


if __name__ == "__main__":
    main()
