"""Compares every layer of tests/data/families with transformers', by JAX on the device here.

    python scripts/check_families.py [--device gpu]

It needs jax, keras, pydantic, scipy, safetensors and platformdirs, but neither tensorflow nor
tensorflow-text, so that it runs on a machine with an accelerator and little else. For each family
it prints the largest difference of a value in float32 from transformers' (float64, stored as
float32), and of wider encoders from NumPy's; and the smallest cosine of a token's vector in
bfloat16. It exits with 1 if one is beyond the documented bound.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import jax
import numpy as np

from bert_features.config.bert_config import BertConfig
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.step import DeviceStep, Precision
from bert_features.runtime.jax import JaxRuntime
from tests import families
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights


def cases() -> Iterator[tuple[str, BertConfig, Mapping[str, Any], dict[str, Any], np.ndarray]]:
    """Name, config, weights, batch, and the states of its real tokens: [1 + L, tokens, H].

    Those of the families are transformers'. Their heads are too narrow for a GPU's kernel of
    attention, so the last ones are wider; their states are a float64 NumPy encoder's.
    """
    for name in families.NAMES:
        config, weights = families.checkpoint(name).config, families.weights(name)
        yield name, config, weights, families.batch(name), families.reference(name)["states"]
    wide = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 130}
    for name in ("bert", "mpnet"):
        config = families.checkpoint(name).config.model_copy(update=wide)
        weights = random_weights(config, scale=0.05)
        batch = random_batch(config, [128, 1, 64, 33, 127], 128)
        batch["input_type_ids"][:] = 0
        found = NumpyEncoder(config, weights)(*batch.values())
        yield f"{name}, wide", config, weights, batch, np.stack(found)[:, batch["input_mask"] == 1]


def states(
    config: BertConfig,
    weights: Mapping[str, Any],
    batch: dict[str, Any],
    runtime: JaxRuntime,
    precision: Precision,
) -> np.ndarray:
    """The states of the real tokens of a batch: float32 [1 + L, tokens, H]."""
    layers = ["embeddings", *range(config.num_hidden_layers)]
    wanted = OutputConfig.of({"name": "state", "layers": layers, "dtype": "float32"})
    outputs = plan_outputs([wanted], config)
    step = DeviceStep(config, weights, outputs, precision=precision)
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
    for name, config, weights, batch, reference in cases():
        want, given = reference.astype(np.float64), (config, weights, batch, runtime)
        exact, rounded = states(*given, "float32"), states(*given, "bfloat16")
        allowed = 1e-5 + 2e-6 * np.abs(want).max(-1, keepdims=True)  # docs/architecture.md
        off, beyond = np.abs(exact - want), np.abs(exact - want) > allowed
        norms = np.linalg.norm(rounded, axis=-1) * np.linalg.norm(want, axis=-1)
        cosine = ((rounded * want).sum(-1) / norms).min()
        bad = beyond.any() or not cosine >= 0.999
        wrong += bad
        print(f"{name:<13} {off.max():.1e}  {cosine:.5f}  {'WRONG' if bad else 'right'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
