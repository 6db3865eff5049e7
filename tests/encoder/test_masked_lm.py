"""The masked-LM head of each family against transformers' logits, and against float64 NumPy."""

import functools

import numpy as np
import pytest

from bert_features.checkpoints.read import read_weights
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder import masked_lm
from bert_features.encoder.forms import traced_for
from bert_features.encoder.step import DeviceStep
from tests import families
from tests.reference.numpy_masked_lm import log_probabilities

K = 6
NAMES = families.NAMES


@functools.cache
def weights(name):
    return read_weights(families.checkpoint(name), head=True)


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def run_layers(name, layers, **options):
    """The step, and for each layer what `run` gives."""
    config = families.checkpoint(name).config
    output = OutputConfig(kind="masked_lm", top_k=K, name="m", layers=layers)
    outputs = plan_outputs([output], config)
    step = DeviceStep(config, weights(name), outputs, **options)
    batch = families.batch(name)
    got = step.step([variable.value for variable in step.weights], batch)
    real = batch["input_mask"] == 1
    assert [got[each.name].dtype for each in outputs] == ["float32", "int32"] * (len(outputs) // 2)
    values, ids = ([np.asarray(got[o.name])[real] for o in outputs[i::2]] for i in range(2))
    return step, list(zip(ids, values, strict=True))


def run(name, **options):
    """Ids and log-probabilities of the real tokens of `families.batch`, [T, K] each."""
    _, (of_last,) = run_layers(name, None, **options)
    return of_last


def assert_likeliest(ids, values, want, atol):
    np.testing.assert_allclose(values, np.take_along_axis(want, ids, -1), rtol=0, atol=atol)
    np.testing.assert_allclose(values, -np.sort(-want, -1)[:, :K], rtol=0, atol=atol)


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_computes_what_transformers_does(name):
    stored, config = families.reference(name), families.checkpoint(name).config
    got = log_probabilities(stored["states"][-1].astype(np.float64), weights(name), config)
    np.testing.assert_allclose(got, log_softmax(stored["logits"]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_likeliest_pieces_are_those_of_transformers(name):
    ids, values = run(name)
    assert_likeliest(ids, values, log_softmax(families.reference(name)["logits"]), 2e-5)
    assert (np.diff(values) <= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_head_reads_each_layer_as_it_is_in_the_hidden_states_of_transformers(name):
    """In ModernBERT the final norm is a part of the last one alone."""
    config, states = families.checkpoint(name).config, families.reference(name)["states"]
    want = log_probabilities(states.astype(np.float64), weights(name), config)
    _, layers = run_layers(name, ["embeddings", "all"])
    assert len(layers) == len(want) == config.num_hidden_layers + 1
    for (ids, values), expected in zip(layers, want, strict=True):
        assert_likeliest(ids, values, expected, 2e-5)
    assert all(map(np.array_equal, layers[-1], run(name)))
    step, lower = run_layers(name, [1])
    assert (step.encoder.num_blocks, step.encoder.final_norm) == (2, None)
    assert_likeliest(*lower[0], want[2], 2e-5)


@pytest.mark.parametrize("form", [{}, {"few_tokens": True}])
def test_parts_of_the_positions_by_themselves_give_the_same(monkeypatch, form):
    monkeypatch.setattr(masked_lm, "MOST_LOGITS", 30 * 7)  # 7 positions at a time
    with traced_for("cpu", **form):
        ids, values = run("albert")
    assert_likeliest(ids, values, log_softmax(families.reference("albert")["logits"]), 2e-5)


def test_bfloat16_rounds_states_and_not_logits():
    ids, values = run("bert", precision="bfloat16")
    want = log_softmax(families.reference("bert")["logits"])
    # On a CPU without products in bfloat16 every sum is rounded too.
    assert_likeliest(ids, values, want, 0.25)
    assert np.abs(values - np.take_along_axis(want, ids, -1)).mean() < 0.03
    assert np.abs(np.exp(values).sum(-1) - np.exp(-np.sort(-want, -1)[:, :K]).sum(-1)).max() < 0.05
    # A bfloat16 has 8 bits of precision; these have more.
    low = values.view(np.uint32) & 0xFFFF
    assert (low != 0).mean() > 0.9
