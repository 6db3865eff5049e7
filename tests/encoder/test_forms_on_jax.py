"""The forms of attention for TPUs and GPUs on JAX, computed on a CPU, against a float64 encoder."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bert_features.config.bert_config import BertConfig
from tests import families
from tests.encoder import test_attention_forms as forms
from tests.packed import OUTPUTS, assert_as_alone, packed_batch
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights

pytestmark = [pytest.mark.slow, pytest.mark.release]

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 2
CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=512,
)
# Length -> the real tokens of each row, 0 for filler rows. On each of two devices there are half of
# the rows: side by side are 8 of 13 tokens and 1 of 128, of which two are joined.
CASES = {
    13: [13, 2, 5, 0, 13, 3, 1, 7, 0, 0, 4, 13, 2, 6, 9, 11],
    128: [128, 5, 0, 77],
    # From 129 tokens on the form for TPUs is another.
    512: [512, 300],
}
# float32 shows that everything is in its place, so bfloat16 needs less.
LENGTHS = {
    "float32": {"tpu": (13, 128, 512), "fused": (128,)},
    "bfloat16": {"tpu": (13, 512), "fused": (13, 128)},
}
# Packed batches, one half on each device.
ROWS = [[40, 5, 2, 61, 20], [128], [2] * 24, [3, 90, 7, 9]]
LONG_ROWS = [[100, 40, 244], [384], [130, 126, 60], [16] * 24, [], [3, 300]]


def packed(rows, length, outputs, precision="float32", form="tpu"):
    return locals()


PACKED = {
    "every output": packed(ROWS, 128, [*OUTPUTS]),
    "long rows": packed(LONG_ROWS, 384, ["layers"]),
    "bfloat16": packed(LONG_ROWS, 384, ["layers"], "bfloat16"),
    "fused": packed(LONG_ROWS, 384, ["layers"], "bfloat16", "fused"),
    "no TPU": packed(ROWS, 128, ["layers"], form="gpu"),
}
# BERT itself is above. The forms for other devices: test_jax.py of runtime, by `check_numbers`.
FAMILIES = [("mpnet", "padded"), ("modernbert", "padded"), ("modernbert", "packed")]
# Edges of test_attention_forms: form, tokens to either side, kind of batch, length of rows.
EDGES = [
    ("gpu", 4, "padded", 17),
    ("gpu", 4, "packed", 6),
    ("tpu", 4, "padded", 6),
    ("tpu", 4, "packed", 17),
    ("tpu", 40, "padded", 129),
    ("tpu", None, "packed", 129),
]


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="no JAX: pip install '.[jax]'")


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """The folder of states, [K, B, S, H], and outputs, all computed by one process."""
    folder = tmp_path_factory.mktemp("batches")
    for length, real in CASES.items():
        np.savez(folder / f"{length}.npz", **random_batch(CONFIG, real, length))
    for name, case in PACKED.items():
        batch, _ = packed_batch(case["rows"], case["length"], CONFIG.vocab_size)
        np.savez(folder / f"{name}.npz", **batch)
    environment = {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        # Little is computed, so the compiler may leave it slow.
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES} "
        "--xla_backend_optimization_level=0",
    }
    command = [sys.executable, "-m", "tests.encoder.forms_on_jax", str(folder)]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=600)
    return folder


@needs_jax
@pytest.mark.parametrize(
    ("precision", "form", "length"),
    [
        (precision, form, length)
        for precision, forms in LENGTHS.items()
        for form, lengths in forms.items()
        for length in lengths
    ],
)
def test_every_layer_equals_float64_numpy(computed, precision, form, length):
    batch = random_batch(CONFIG, CASES[length], length)
    encoder = NumpyEncoder(CONFIG, random_weights(CONFIG))
    expected = np.stack(
        encoder(batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"])
    )
    got = np.load(computed / f"{form}-{precision}-{length}.npy")
    assert np.isfinite(got).all()  # of padding and filler rows too
    real = batch["input_mask"] == 1
    a, b = got[:, real].astype(np.float64), expected[:, real]
    if precision == "float32":
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=0)
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert cosine.min() > 0.999


@needs_jax
def test_only_long_rows_in_bfloat16_are_fused(computed):
    assert (computed / "fused.txt").read_text() == "128 bfloat16, 384 bfloat16"


@needs_jax
@pytest.mark.parametrize("name", PACKED)
def test_texts_of_packed_rows_are_as_alone(computed, name):
    case = PACKED[name]
    _, texts = packed_batch(case["rows"], case["length"], CONFIG.vocab_size)
    got = dict(np.load(computed / f"{name}-outputs.npz"))
    assert set(got) == set(case["outputs"])
    assert_as_alone(got, CONFIG, random_weights(CONFIG), texts, case["precision"])


@needs_jax
@pytest.mark.parametrize(("name", "kind"), FAMILIES)
def test_every_layer_of_each_family_is_transformers_own(computed, name, kind):
    states = np.load(computed / f"{name}-{kind}.npy")
    mask = families.batch(name)["input_mask"]
    if kind == "packed":
        states, mask = families.unpacked(name, states)
    families.assert_states(name, states, mask)


@needs_jax
@pytest.mark.parametrize(("form", "window", "kind", "length"), EDGES)
def test_every_text_is_as_alone(computed, form, window, kind, length):
    batch, texts = forms.BATCHES[kind](window, length)
    states = np.load(computed / f"edges-{form}-{window}-{kind}-{length}.npy")
    forms.assert_states(window, batch, texts, states)
