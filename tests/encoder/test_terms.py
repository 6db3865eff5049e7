"""The weights of terms in the device step, against float64 NumPy on transformers' logits."""

import numpy as np
import pytest

from bert_features.checkpoints.read import read_weights
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder import terms
from bert_features.encoder.step import DeviceStep
from tests import families, sparse_encoder

K = 6


def run(name, pooling, *, states=None, **options):
    """What the step gives for `families.batch`, [B, 2 K + 1]."""
    checkpoint = families.checkpoint(name)
    output = OutputConfig(kind="sparse", top_k=K, pooling=pooling, min_weight=0.25)
    outputs = plan_outputs([output], checkpoint.config)
    step = DeviceStep(checkpoint.config, read_weights(checkpoint, head=True), outputs, **options)
    values = [variable.value for variable in step.weights]
    return np.asarray(step.step(values, families.batch(name))["sparse"])


def want(name, pooling):
    """Weights [B, V] of all terms."""
    stored, mask = families.reference(name), families.batch(name)["input_mask"]
    logits = np.zeros((*mask.shape, stored["logits"].shape[-1]))
    logits[mask == 1] = stored["logits"]
    return sparse_encoder.pooled(logits, mask, pooling)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pooling", "most", "options", "atol"),
    [
        ("bert", "max", 1 << 25, {}, 2e-5),
        ("modernbert", "sum_log1p", 1 << 25, {}, 2e-5),
        ("albert", "max_log1p", 200, {}, 2e-5),  # a few pieces, and a few rows, at a time
        ("roberta", "sum", 200, {}, 1e-4),
        ("bert", "max", 1 << 25, {"precision": "bfloat16"}, 0.1),
    ],
)
def test_the_heaviest_terms(monkeypatch, name, pooling, most, options, atol):
    monkeypatch.setattr(terms, "MOST_LOGITS", most)
    ids, weights, counts = np.split(run(name, pooling, **options), [K, 2 * K], axis=1)
    wanted = want(name, pooling)
    found = np.take_along_axis(wanted, ids.astype(int), axis=1)
    np.testing.assert_allclose(weights, found, rtol=0, atol=atol)
    np.testing.assert_allclose(weights, -np.sort(-wanted, 1)[:, :K], rtol=0, atol=atol)
    near = np.abs(wanted - 0.25) < atol
    assert np.abs(counts[:, 0] - (wanted > 0.25).sum(1)).max() <= near.sum(1).max()
