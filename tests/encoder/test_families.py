"""Each family of encoders against transformers' own layers, and against float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.forms import traced_for
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.step import DeviceStep
from bert_features.machine import onednn
from tests import families
from tests.packed import CLS, OUTPUTS, SEP, assert_as_alone, packed_batch
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights


def make(name, **options):
    encoder = BertEncoder(families.checkpoint(name).config, **options)
    encoder.load_weights_dict(families.weights(name))
    return encoder


@pytest.mark.parametrize("name", families.NAMES)
def test_the_oracle_computes_what_transformers_does(name):
    batch = families.batch(name)
    encoder = NumpyEncoder(families.checkpoint(name).config, families.weights(name))
    states = encoder(batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"])
    real = batch["input_mask"] == 1
    want = families.reference(name)["states"]
    np.testing.assert_allclose([state[real] for state in states], want, rtol=0, atol=2e-6)
    families.assert_attention(name, np.stack(encoder.attention_of), atol=1e-6)


@pytest.mark.parametrize("fuse_qkv", [True, False])
@pytest.mark.parametrize("name", families.NAMES)
def test_every_layer_is_transformers_own(name, fuse_qkv):
    batch = families.batch(name)
    pooler = families.checkpoint(name).config.has_pooler
    outputs = make(name, with_pooler=pooler, fuse_qkv=fuse_qkv)(batch)
    states = EncoderOutputs.from_dict(outputs).states
    families.assert_states(name, np.stack(states), batch["input_mask"])
    if pooler:
        want = families.reference(name)["pooled_output"]
        np.testing.assert_allclose(outputs["pooled_output"], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", [{}, {"row_limit": 0}, {"few_tokens": True}])
@pytest.mark.parametrize("name", families.NAMES)
def test_every_layer_in_the_forms_for_cpus(name, form):
    batch = families.batch(name)
    encoder = make(name)
    with traced_for("cpu", **form):
        states = EncoderOutputs.from_dict(encoder(batch)).states
    families.assert_states(name, np.stack(states), batch["input_mask"])


@pytest.mark.parametrize("device", ["cpu", "tpu"])
@pytest.mark.parametrize("name", families.NAMES)
def test_rows_that_share_a_row_keep_their_layers(name, device):
    encoder = make(name)
    with traced_for(device):
        states = EncoderOutputs.from_dict(encoder(families.packed_batch(name))).states
    families.assert_states(name, *families.unpacked(name, np.stack(states)))


# With oneDNN's own products, to which a layer without a bias gives zeros.
_USUAL = ("cpu", {"fixed_weights": True} if onednn.is_x86() else {}, "float32")
STEPS = [
    (*_USUAL, [name for name in OUTPUTS if name != "pooler"]),
    ("tpu", {}, "float32", ["layers", "joined"]),
    ("cpu", {}, "bfloat16", ["layers", "joined"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("device", "form", "precision", "outputs"), STEPS)
def test_every_output_of_packed_rows(device, form, precision, outputs):
    """Of ModernBERT. The other families pool as BERT does, see test_packing."""
    config, weights = families.checkpoint("modernbert").config, families.weights("modernbert")
    settings = [OutputConfig.of({"name": name, **OUTPUTS[name]}) for name in outputs]
    step = DeviceStep(
        config,
        weights,
        plan_outputs(settings, config),
        special_ids=(CLS, SEP),
        precision=precision,
        packed=True,
    )
    batch, texts = packed_batch([[20, 5, 2], [4, 19, 3], [], [2] * 12], 32, config.vocab_size)
    batch["input_type_ids"][:] = 0
    for text in texts:
        text.types[:] = 0

    def run(weights, batch):
        with traced_for(device, **form):
            return step.step(weights, batch)

    inputs = {key: batch[key] for key in step.inputs}
    got = tf.function(run, autograph=False)([v.value for v in step.weights], inputs)
    got = {key: tf.cast(value, tf.float32).numpy() for key, value in got.items()}
    assert_as_alone(got, config, weights, texts, precision)


@pytest.mark.parametrize(
    ("device", "form", "lengths"),
    [("gpu", {}, [31]), ("tpu", {}, [25]), ("cpu", {"row_limit": 0}, [25, 31, 40])],
)
def test_rows_much_longer_than_the_window(device, form, lengths):
    """Attention in blocks of 8 along the band: the last has one token, 7 or 8."""
    config, weights = families.checkpoint("modernbert").config, families.weights("modernbert")
    encoder = make("modernbert", num_blocks=2)  # a layer that sees all, and one with the window
    shape = [None, None] if device == "cpu" else [2, *lengths]
    names = ("input_word_ids", "input_mask", "input_type_ids")
    signature = {name: tf.TensorSpec(shape, tf.int32) for name in names}

    @tf.function(input_signature=[signature], autograph=False)
    def run(batch):
        with traced_for(device, **form):
            return EncoderOutputs.from_dict(encoder(batch)).states

    for length in lengths:
        batch = random_batch(config, [length, 9], length)
        batch["input_type_ids"][:] = 0
        want = np.stack(NumpyEncoder(config, weights)(*batch.values())[:3])
        real = batch["input_mask"] == 1
        got = np.stack(run(batch))[:, real]
        np.testing.assert_allclose(got, want[:, real], rtol=0, atol=2e-5)
    if device == "gpu":
        graph = run.get_concrete_function().graph
        scores = [op.outputs[0].shape for op in graph.get_operations() if op.type == "Softmax"]
        assert scores == [[2, 2, 31, 31], [2 * 4, 2, 8, 16]]


def test_dropout_of_attention_along_the_band():
    """Training in rows of 31 tokens: the oracle's numbers, or others and finite gradients."""
    config = families.checkpoint("modernbert").config
    config = config.model_copy(update={"attention_probs_dropout_prob": 0.5})
    encoder = BertEncoder(config, num_blocks=2, use_dropout=True)
    encoder.load_weights_dict(families.weights("modernbert"))
    batch = random_batch(config, [31, 9], 31)
    batch["input_type_ids"][:] = 0
    real = batch["input_mask"] == 1
    want = NumpyEncoder(config, families.weights("modernbert"))(*batch.values())[2]

    def last(training):
        return EncoderOutputs.from_dict(encoder(batch, training=training)).states[-1]

    np.testing.assert_allclose(last(False)[real], want[real], rtol=0, atol=2e-5)
    band = encoder.blocks[1].attention
    encoder.blocks[0].attention.dropout = None
    with tf.GradientTape() as tape:
        dropped = last(True)
        loss = tf.reduce_sum(tf.boolean_mask(dropped, real) ** 2)
    assert np.abs(dropped[real] - want[real]).max() > 1e-2
    gradients = tape.gradient(loss, [band.projections[0].weight.value])
    assert all(np.isfinite(each).all() and np.any(each) for each in gradients)


@pytest.mark.slow
@pytest.mark.parametrize("name", families.NAMES)
def test_blocks_that_layers_share_are_one_set_of_variables(name):
    config = families.checkpoint(name).config
    count = {"albert": 2}.get(name, config.num_hidden_layers)
    encoder = make(name)
    assert len(encoder.blocks) == count
    names = [name for names in encoder.weight_names() for name in names]
    assert len(names) == len(set(names)) == len(families.weights(name)) - 2 * config.has_pooler
    half = make(name, num_blocks=2)  # of ALBERT both layers are the first block
    assert len(half.blocks) == (1 if name == "albert" else 2)
    states = EncoderOutputs.from_dict(half(families.batch(name))).states
    real = families.batch(name)["input_mask"] == 1
    want = families.reference(name)["states"][2]
    np.testing.assert_allclose(np.asarray(states[-1])[real], want, rtol=0, atol=2e-5)


def test_one_group_of_twelve_layers_as_every_published_albert():
    config = families.checkpoint("albert").config.model_copy(
        update={"num_hidden_groups": 1, "num_hidden_layers": 12}
    )
    weights = random_weights(config)
    encoder = BertEncoder(config)
    encoder.load_weights_dict(weights)
    batch = random_batch(config, [9, 20], 20)
    states = EncoderOutputs.from_dict(encoder(batch)).states
    want = NumpyEncoder(config, weights)(
        batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"]
    )
    real = batch["input_mask"] == 1
    np.testing.assert_allclose(
        [np.asarray(state)[real] for state in states], np.stack(want)[:, real], rtol=0, atol=2e-5
    )
