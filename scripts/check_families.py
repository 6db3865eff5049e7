"""Compares every layer of tests/data/families with transformers', by JAX on the device here.

    python scripts/check_families.py [--device gpu]

It needs jax, keras, pydantic, safetensors and platformdirs, but neither tensorflow nor
tensorflow-text, so that it runs on a machine with an accelerator and little else. For each family
it prints the largest difference of a value from transformers' (float64, stored as float32) in
float32, and the smallest cosine of a token's vector in bfloat16. It exits with 1 if one is beyond
the documented bound.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import jax
import numpy as np

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.step import DeviceStep
from bert_features.runtime.jax import JaxRuntime
from tests import families


def states(name: str, runtime: JaxRuntime, precision: str) -> np.ndarray:
    """The states of all rows of a family's reference: float32 [1 + L, tokens, H]."""
    config = families.checkpoint(name).config
    layers = ["embeddings", *range(config.num_hidden_layers)]
    wanted = OutputConfig.of({"name": "state", "layers": layers, "dtype": "float32"})
    outputs = plan_outputs([wanted], config)
    step = DeviceStep(config, families.weights(name), outputs, precision=precision)
    batch = families.batch(name)
    results = runtime.compile(step.step, step.weights).run(batch)
    real = batch["input_mask"] == 1
    return np.stack([results[output.name][real] for output in outputs])


def main() -> int:
    """Prints the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "tpu", "gpu", "cpu"), default="auto")
    runtime = JaxRuntime(parser.parse_args().device)
    print(f"{jax.local_devices()[0].device_kind}, jax {jax.__version__}")
    wrong = 0
    for name in families.NAMES:
        want = families.reference(name)["states"].astype(np.float64)
        exact, rounded = (states(name, runtime, p) for p in ("float32", "bfloat16"))
        allowed = 1e-5 + 2e-6 * np.abs(want).max(-1, keepdims=True)  # docs/architecture.md
        off, beyond = np.abs(exact - want), np.abs(exact - want) > allowed
        norms = np.linalg.norm(rounded, axis=-1) * np.linalg.norm(want, axis=-1)
        cosine = ((rounded * want).sum(-1) / norms).min()
        bad = beyond.any() or not cosine >= 0.999
        wrong += bad
        print(f"{name:<12} {off.max():.1e}  {cosine:.5f}  {'WRONG' if bad else 'right'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
