"""Every form of attention at its edges, against float64 NumPy; JAX has them in `forms_on_jax`.

The edges: one token; the first and the last token inside a window and the first outside, at both
ends of a row; rows that are cut, and rows with padding; the last token of a packed text and the
first of its neighbour; the lengths at which another form is chosen.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_features.encoder.attention.banded import Banded, BandedLanes
from bert_features.encoder.attention.by_head import ByHead, ByLength, HeadsFirst
from bert_features.encoder.attention.choice import choose_form
from bert_features.encoder.attention.lanes import Lanes, joined_rows, rows_side_by_side
from bert_features.encoder.attention.plain import Plain, Weighing
from bert_features.encoder.forms import traced_for
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from tests import families
from tests.packed import packed_batch
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import random_batch, random_weights

FORMS = {
    "any": ("gpu", {}),
    "cpu": ("cpu", {}),
    "few tokens": ("cpu", {"few_tokens": True}),
    "head by head": ("cpu", {"row_limit": 0}),
    "narrow": ("cpu", {"row_limit": 0, "narrow": True}),
    "by length": ("cpu", {"row_limit": 6}),
    "lanes": ("tpu", {}),
}
# Form -> tokens to either side (None for MPNet, which has biases instead) -> lengths of rows. From
# 5 to 6 tokens one pair falls outside a window of 4; from 17 on rows are in blocks of two windows,
# of which the last has one token, or is full. In lanes a row of more than 128 tokens has its scores
# computed twice; of four rows of 32 tokens all lie side by side, of 33 two.
LENGTHS = {
    "any": {4: (1, 5, 6, 16, 17, 24), None: (6,)},
    "cpu": {4: (5, 6, 17)},
    "few tokens": {4: (6, 17)},
    "head by head": {4: (6, 17)},
    "narrow": {4: (6,)},
    "by length": {4: (6, 7, 17), None: (6, 7)},
    "lanes": {4: (1, 5, 6, 16, 17, 24), 40: (128, 129), None: (32, 33, 129)},
}


@functools.cache
def made(window):
    """The config and the weights of two layers: all, then a window; with None MPNet's biases."""
    settings = {"num_hidden_layers": 2, "max_position_embeddings": 260}
    if window is not None:
        settings |= {"local_attention": 2 * window, "global_attn_every_n_layers": 2}
    config = families.checkpoint("mpnet" if window is None else "modernbert").config
    config = config.model_copy(update=settings)
    return config, random_weights(config)


def padded(window, length):
    """A batch of four rows: cut, of one token, and between; and its texts, one for each row."""
    config, _ = made(window)
    lengths = [length, max(length - 1, 1), (length + 1) // 2, 1]
    batch = random_batch(config, lengths, length)
    batch["input_type_ids"][:] = 0
    return batch, [(row, slice(0, size)) for row, size in enumerate(lengths)]


def cut(window, length):
    """A batch of two rows without padding, which head by head has a branch of its own."""
    batch = random_batch(made(window)[0], [length] * 2, length)
    batch["input_type_ids"][:] = 0
    return batch, [(row, slice(0, length)) for row in range(2)]


def packed(window, length):
    """Rows of texts: one fills its row, one token has neighbours, two rows are empty."""
    first = max(length // 3, 1)
    rows = [[length], [first, 1, length - first - 1] if length > first + 1 else [1], [], []]
    batch, texts = packed_batch(rows, length, made(window)[0].vocab_size)
    batch["input_type_ids"][:] = 0
    del batch["word_indices"]
    return batch, [(text.row, slice(text.start, text.start + len(text.ids))) for text in texts]


BATCHES = {"padded": padded, "cut": cut, "packed": packed}


def encoder_of(window):
    config, weights = made(window)
    encoder = BertEncoder(config, initializer="zeros")
    encoder.load_weights_dict(weights)
    return encoder


def assert_states(window, batch, texts, got):
    """States [1 + L, B, S, H] are those of each text alone, and finite everywhere."""
    encoder = NumpyEncoder(*made(window))
    assert np.isfinite(got).all()
    for row, tokens in texts:
        ids = batch["input_word_ids"][None, row, tokens]
        want = np.stack(encoder(ids, np.ones_like(ids), np.zeros_like(ids)))[:, 0]
        np.testing.assert_allclose(got[:, row, tokens], want, rtol=0, atol=2e-5)


CASES = [
    (form, window, length)
    for form, windows in LENGTHS.items()
    for window, lengths in windows.items()
    for length in lengths
]


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1 of a tensor of shape")
@pytest.mark.parametrize(("form", "window", "length"), CASES)
def test_every_text_is_as_alone(form, window, length):
    device, choices = FORMS[form]
    encoder = encoder_of(window)
    for kind, make in BATCHES.items():
        if kind == "cut" and "row_limit" not in choices:
            continue
        batch, texts = make(window, length)
        with traced_for(device, **choices):
            states = EncoderOutputs.from_dict(encoder(batch)).states
        assert_states(window, batch, texts, np.stack(states))


def test_rows_whose_length_tensorflow_does_not_know():
    """As a runtime traces them for a CPU: rows above the limit head by head, in blocks."""
    encoder = encoder_of(4)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in names}

    @tf.function(input_signature=[signature], autograph=False)
    def run(batch):
        with traced_for("cpu", row_limit=6):
            return EncoderOutputs.from_dict(encoder(batch)).states

    for length in (2, 6, 7, 17, 24):
        batch, texts = padded(4, length)
        assert_states(4, batch, texts, np.stack(run(batch)))


CHOICES = [
    # device, choices, window, length, drop, shown -> form, form of a block
    ("gpu", {}, None, 500, False, False, Plain),
    ("gpu", {}, 4, 16, False, False, Plain),
    ("gpu", {}, 4, 17, False, False, (Banded, Plain)),
    ("gpu", {}, 0, 17, False, False, Plain),
    ("gpu", {}, 4, None, False, False, Plain),
    ("cpu", {}, 4, 17, False, False, (Banded, Plain)),
    ("cpu", {"row_limit": 9}, None, None, False, False, (ByLength, HeadsFirst, ByHead)),
    ("cpu", {"row_limit": 9}, 4, None, False, False, (ByLength, HeadsFirst, Banded, ByHead)),
    ("cpu", {"row_limit": 9}, 0, 16, False, False, (ByLength, HeadsFirst, ByHead)),
    ("cpu", {"row_limit": 0}, 4, None, True, False, Weighing),
    ("cpu", {"row_limit": 0}, 4, 17, True, False, (Banded, Weighing)),
    ("cpu", {"row_limit": 0}, 4, 17, True, True, Weighing),
    ("cpu", {"row_limit": 0}, 4, 17, False, True, Weighing),
    ("tpu", {}, None, 500, False, False, Lanes),
    ("tpu", {}, 4, 16, False, False, Lanes),
    ("tpu", {}, 4, 17, False, False, BandedLanes),
    ("tpu", {}, 4, 17, True, False, (Banded, Weighing)),
    ("tpu", {}, 4, 17, False, True, Weighing),
]


def parts_of(form):
    """A form and those that it is made of."""
    inner = [getattr(form, name, None) for name in ("short", "long", "of_block")]
    return [form, *(part for each in inner if each is not None for part in parts_of(each))]


@pytest.mark.parametrize("case", CHOICES)
def test_the_form_of_a_block_on_a_device(case):
    device, choices, window, length, drops, shown, want = case
    with traced_for(device, **choices):
        drop = (lambda weights: weights) if drops else None
        form = choose_form(2, 4, window, length, drop=drop, shown=shown)
    assert tuple(map(type, parts_of(form))) == (want if isinstance(want, tuple) else (want,))
    assert (form.heads, form.head_size, form.reach, form.drop) == (2, 4, window, drop)


@pytest.mark.parametrize(
    ("rows", "length", "beside"),
    [(4, 32, 4), (4, 33, 2), (3, 64, 1), (3, 42, 3), (2, 64, 2), (2, 129, 1), (500, 1, 125)],
)
def test_rows_side_by_side_fill_the_lanes(rows, length, beside):
    assert rows_side_by_side(np.ones((rows, length), np.int32)) == beside


@pytest.mark.parametrize(
    ("shape", "joined"),
    [
        ((4, 64, 3), (1, 256, 3)),
        ((6, 128, 3), (3, 256, 3)),
        ((3, 64, 3), (3, 64, 3)),  # 192 tokens
        ((2, 256, 3), (2, 256, 3)),
        ((1, 512, 3), (1, 512, 3)),
        ((None, 128, 3), (None, 128, 3)),
        ((2, None, 3), (2, None, 3)),
    ],
)
def test_short_rows_are_joined_where_256_divides_their_tokens(shape, joined):
    function = tf.function(joined_rows, input_signature=[tf.TensorSpec(shape)], autograph=False)
    assert tuple(function.get_concrete_function().output_shapes) == joined
    if None not in shape:
        x = np.arange(np.prod(shape), dtype=np.float32)
        np.testing.assert_array_equal(np.ravel(function(x.reshape(shape))), x)
