"""The forms of attention for TPUs on JAX, computed on a CPU, against a float64 encoder."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bert_features.config.bert_config import BertConfig
from bert_features.encoder.pallas_attention import _heads_together
from bert_features.errors import ConfigError
from bert_features.runtime.start import make_runtime
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 2
CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=700,
)
# Length -> the real tokens of each row, 0 for filler rows. On each of two devices there are half of
# the rows: side by side are 8 of 13 tokens, 3 of 40 and 1 of 128, of which two are joined.
CASES = {
    13: [13, 2, 5, 0, 13, 3, 1, 7, 0, 0, 4, 13, 2, 6, 9, 11],
    40: [40, 13, 2, 0, 7, 40],
    128: [128, 5, 0, 77],
    # From 129 tokens on XLA's form is another; more than 512 queries take two steps of the kernel.
    512: [512, 300],
    600: [600, 513],
}
FORMS = ("xla", "pallas")
# float32 shows that everything is in its place, so bfloat16 needs less.
LENGTHS = {"float32": tuple(CASES), "bfloat16": (13, 600)}
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="no JAX: pip install '.[jax]'")


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Gives the states of a batch, [K, B, S, H], all computed by one process."""
    folder = tmp_path_factory.mktemp("batches")
    for length, real in CASES.items():
        np.savez(folder / f"{length}.npz", **random_batch(CONFIG, real, length))
    environment = {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        # Little is computed, so the compiler may leave it slow.
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES} "
        "--xla_backend_optimization_level=0",
    }
    command = [sys.executable, "-m", "tests.encoder.on_pallas", str(folder)]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=600)
    return lambda attention, precision, length: np.load(
        folder / f"{attention}-{precision}-{length}.npy"
    )


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "length"),
    [(precision, length) for precision, lengths in LENGTHS.items() for length in lengths],
)
@pytest.mark.parametrize("attention", FORMS)
def test_every_layer_equals_float64_numpy(states, attention, precision, length):
    batch = random_batch(CONFIG, CASES[length], length)
    encoder = NumpyEncoder(CONFIG, random_weights(CONFIG))
    expected = np.stack(
        encoder(batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"])
    )
    got = states(attention, precision, length)
    assert np.isfinite(got).all()  # of padding and filler rows too
    real = batch["input_mask"] == 1
    a, b = got[:, real].astype(np.float64), expected[:, real]
    if precision == "float32":
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=0)
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert cosine.min() > 0.999


@pytest.mark.parametrize(
    ("heads", "bytes_of_one", "together"),
    [(12, 4 * 64 * 512 * 2, 12), (12, 4 * 64 * 512 * 4, 6), (7, 1 << 20, 1), (2, 5 << 20, 1)],
)
def test_the_heads_of_one_step(heads, bytes_of_one, together):
    """As many as 4 MiB hold, in equal shares."""
    assert _heads_together(heads, bytes_of_one) == together


def test_the_kernel_is_for_jax():
    with pytest.raises(ConfigError, match=r"attention='pallas' needs JAX, .* pass runtime='jax'"):
        make_runtime("tensorflow", "cpu", "pallas")
