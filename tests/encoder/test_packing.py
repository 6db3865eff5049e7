"""Packed rows: every output of a text is that of the text alone, by a float64 encoder."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features.config.bert_config import BertConfig
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.encoder.forms import traced_for
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.step import DeviceStep
from bert_features.machine import onednn
from tests.packed import CLS, OUTPUTS, SEP, assert_as_alone, packed_batch
from tests.toy import random_weights

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=100,  # fewer than a packed row has tokens
)
WEIGHTS = random_weights(CONFIG)
# Full and half-empty rows, one of a single text, one of the shortest, and filler rows. As many as
# `random_rows` has, so that both are one shape.
ROWS = [[40, 5, 2, 61, 20], [100], [2] * MAX_PACKED_TEXTS, [], [3, 90, 7, 9], []]


def random_rows(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(6):
        lengths = rng.integers(2, rng.integers(5, 100), MAX_PACKED_TEXTS)
        rows.append(lengths[np.cumsum(lengths) <= 128].tolist())
    return rows


FORMS = {
    "cpu": ("cpu", {}),
    "head by head": ("cpu", {"row_limit": 0}),
    "head by head, narrow": ("cpu", {"row_limit": 0, "narrow": True}),
    "few tokens": ("cpu", {"few_tokens": True}),
    "gpu": ("gpu", {}),
    "tpu": ("tpu", {}),
}
if onednn.is_x86():
    FORMS["fixed weights"] = ("cpu", {"fixed_weights": True})


def traced(form, outputs, precision="float32"):
    """A packed step of some of OUTPUTS."""
    device, choices = FORMS[form]
    settings = [OutputConfig.of({"name": name, **OUTPUTS[name]}) for name in outputs]
    specs = plan_outputs(settings, CONFIG)
    model = DeviceStep(
        CONFIG, WEIGHTS, specs, special_ids=(CLS, SEP), precision=precision, packed=True
    )

    @tf.function(autograph=False)
    def run(batch):
        with traced_for(device, **choices):
            return model.step([variable.value for variable in model.weights], batch)

    if device == "cpu":  # one trace for all shapes, as the runtime makes it
        any_shape = tf.TensorSpec([None, None], tf.int32)
        run = run.get_concrete_function(dict.fromkeys(model.inputs, any_shape))

    def step(batch):
        results = run({name: tf.constant(batch[name]) for name in model.inputs})
        return {name: values.numpy() for name, values in results.items()}

    return step


@pytest.mark.slow
@pytest.mark.parametrize("form", ["cpu", "gpu"])
def test_every_output_is_that_of_the_text_alone(form):
    """In rows made by hand and random ones; the forms for TPUs are in test_forms_on_jax."""
    step = traced(form, OUTPUTS)
    for rows in (ROWS, random_rows(0)):
        batch, texts = packed_batch(rows, 128, CONFIG.vocab_size)
        assert_as_alone(step(batch), CONFIG, WEIGHTS, texts, "float32")


# Not bfloat16 for TPUs: TensorFlow's einsum sums in bfloat16 on a CPU without oneDNN.
IN_BFLOAT16 = {"cpu", "head by head", "gpu", "fixed weights"} & FORMS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "precision"),
    [*((form, "float32") for form in FORMS), *((form, "bfloat16") for form in sorted(IN_BFLOAT16))],
)
def test_every_layer_and_the_pooler_in_every_form(form, precision):
    batch, texts = packed_batch(random_rows(1), 128, CONFIG.vocab_size)
    got = traced(form, ("layers", "pooler"), precision)(batch)
    assert_as_alone(got, CONFIG, WEIGHTS, texts, precision)


def test_a_text_does_not_depend_on_its_neighbours():
    """Not in one bit, at the same place of a row."""
    step = traced("gpu", ["layers"])
    batch, (_, text, _) = packed_batch([[40, 30, 50]], 128, CONFIG.vocab_size)
    other = {name: values.copy() for name, values in batch.items()}
    beside = batch["text_numbers"] != 2
    other["input_word_ids"][beside] = (batch["input_word_ids"][beside] + 7) % CONFIG.vocab_size
    one, two = (step(each)["layers"] for each in (batch, other))
    where = slice(text.start, text.start + len(text.ids))
    np.testing.assert_array_equal(one[0, where], two[0, where])
    assert not np.array_equal(one[0, :40], two[0, :40])


def test_the_inputs_of_a_step():
    settings = [{}, {"name": "words", "level": "word"}]
    both = plan_outputs([OutputConfig.of({"layers": [-1], **each}) for each in settings], CONFIG)
    token = both[:1]
    packed = DeviceStep(CONFIG, None, both, packed=True)
    three = ("input_word_ids", "input_mask", "input_type_ids")
    assert packed.inputs == (*three, "text_numbers", "position_ids", "word_indices")
    assert packed.computing(token).inputs == (*three, "text_numbers", "position_ids")
    assert DeviceStep(CONFIG, None, token).inputs == three


def test_the_shapes_of_the_encoders_outputs():
    import keras

    encoder = BertEncoder(CONFIG, with_pooler=True)
    batch, _ = packed_batch([[3, 4]], 8, CONFIG.vocab_size)
    del batch["word_indices"]
    inputs = {name: keras.KerasTensor(values.shape, "int32") for name, values in batch.items()}
    spec, got = encoder.compute_output_spec(inputs), encoder(batch)
    for name in ("sequence_output", "pooled_output"):
        assert spec[name].shape == tuple(got[name].shape)
    assert spec["pooled_output"].shape == (1, MAX_PACKED_TEXTS, 16)
