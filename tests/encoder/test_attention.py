"""Attention as an output, against transformers' own and a float64 oracle of words and heads."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.forms import traced_for
from bert_features.encoder.step import DeviceStep
from tests import families
from tests.reference import numpy_outputs


def specs(name, **settings):
    output = OutputConfig.of({"kind": "attention", "name": "a", **settings})
    return plan_outputs([output], families.checkpoint(name).config)


def make(name, precision="float32", **settings):
    """A step, and its function of a batch as the runtime of a device traces it."""
    weights = families.weights(name)
    return DeviceStep(
        families.checkpoint(name).config, weights, specs(name, **settings), precision=precision
    )


def compute(step, batch, device="cpu", **form):
    def run(weights, batch):
        with traced_for(device, **form):
            return step.step(weights, batch)

    inputs = {key: batch[key] for key in step.inputs}
    got = tf.function(run, autograph=False)([v.value for v in step.weights], inputs)
    return [tf.cast(got[output.name], tf.float32).numpy() for output in step.outputs]


FORMS = [
    ("cpu", {}),
    ("cpu", {"row_limit": 0}),
    ("cpu", {"few_tokens": True}),
    ("gpu", {}),
    ("tpu", {}),
]
# The attention of the other families is BERT's, so one form of each is enough.
CASES = [
    *((name, *form) for name in ("bert", "modernbert", "mpnet") for form in FORMS),
    *((name, "cpu", {}) for name in ("albert", "electra", "distilbert", "roberta")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "device", "form"), CASES)
def test_attention_is_transformers_own(name, device, form):
    layers = range(families.checkpoint(name).config.num_hidden_layers)
    step = make(name, layers=list(layers))
    got = compute(step, families.batch(name, 24), device, **form)  # of 20 tokens at most
    families.assert_attention(name, np.stack(got))


@pytest.mark.parametrize("device", ["cpu", "tpu"])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_layers_beside_it_keep_their_values(name, device):
    step = DeviceStep(
        families.checkpoint(name).config,
        families.weights(name),
        (
            *specs(name, layers=[1]),
            *plan_outputs([OutputConfig.of({"layers": [-1]})], families.checkpoint(name).config),
        ),
    )
    batch = families.batch(name)
    _, last = compute(step, batch, device)
    want = families.reference(name)["states"][-1]
    np.testing.assert_allclose(last[batch["input_mask"] == 1], want, rtol=0, atol=2e-5)


def words_of(batch):
    """Words of one, two and three tokens; tokens 0 and 5 and the last are of none."""
    numbers = np.array([-1, 0, 1, 1, 2, -1, 3, 3, 3, *range(4, 40)])[: batch["input_mask"].shape[1]]
    batch["word_indices"] = np.where(batch["input_mask"] == 1, numbers, -1).astype(np.int32)
    for row, length in enumerate(batch["input_mask"].sum(axis=1)):
        batch["word_indices"][row, length - 1] = -1
    return batch


SHOWN = [
    {"heads": heads, "level": level, "pooling": pooling}
    for heads in ("all", [1], [1, 0], "mean", "max")
    for level in ("token", "word")
    for pooling in ("none", "cls")
]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_heads_words_and_the_row_of_cls(name):
    """Every kind of output, computed in one step."""
    config, batch = families.checkpoint(name).config, words_of(families.batch(name))
    outputs = [
        OutputConfig.of({"kind": "attention", "name": f"{i}", "layers": [-2], **settings})
        for i, settings in enumerate(SHOWN)
    ]
    step = DeviceStep(config, families.weights(name), plan_outputs(outputs, config))
    for settings, spec, got in zip(SHOWN, step.outputs, compute(step, batch), strict=True):
        assert_shown(name, batch, got, spec.heads, settings["level"], settings["pooling"])


def assert_shown(name, batch, got, heads, level, pooling):
    for row, weights in enumerate(families.attention(name)):
        indices = batch["word_indices"][row]
        words = [np.flatnonzero(indices == w) for w in range(indices.max() + 1)]
        if level == "word" and not words:
            continue
        want = numpy_outputs.show_attention(
            weights[-2].astype(np.float64), heads, words if level == "word" else None, pooling
        )
        size = len(words) if level == "word" else weights.shape[-1]
        found = got[row, :size] if pooling == "cls" else got[row, :, :size, :size]
        assert want.shape == found.shape
        message = f"{heads} of {level}, {pooling}"
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5, err_msg=message)


@pytest.mark.parametrize(("dtype", "atol"), [("float16", 5e-4), ("bfloat16", 4e-3)])
def test_half_precision(dtype, atol):
    (got,) = compute(make("bert", layers=[0], dtype=dtype), families.batch("bert"))
    for row, want in enumerate(families.attention("bert")):
        length = want.shape[-1]
        np.testing.assert_allclose(got[row, :, :length, :length], want[0], rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_arithmetic_in_bfloat16(name):
    (got,) = compute(make(name, precision="bfloat16", layers=[0]), families.batch(name))
    for row, want in enumerate(families.attention(name)):
        length = want.shape[-1]
        part = got[row, :, :length, :length]
        np.testing.assert_allclose(part, want[0], rtol=0, atol=0.04)
        np.testing.assert_allclose(part.sum(axis=-1), 1, atol=0.01)
