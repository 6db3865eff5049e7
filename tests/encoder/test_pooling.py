"""compute_outputs against the float64 oracle, on random states, masks and words."""

from typing import get_args

import ml_dtypes
import numpy as np
import pytest

from bert_features.config.kinds import KINDS
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import Combine, OutputConfig
from bert_features.config.poolings import DOUBLE_WIDTH, POOLINGS
from bert_features.encoder import pooling
from bert_features.encoder.computations import COMPUTE
from bert_features.encoder.forms import traced_for
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.pooling import compute_outputs
from tests.encoder import gradients
from tests.reference import numpy_outputs
from tests.toy import TOY

CLS, SEP = 2, 3
LENGTHS = (12, 2, 7, 3, 0)  # the last is a filler row
S, H = 12, TOY.hidden_size
# Of the tokens between [CLS] and [SEP]; -1 is a token of no word.
WORDS = {0: [0, 0, 0, 1, 2, 2, 3, 3, 3, 3], 2: [0, -1, 1, 1, 2], 3: [0]}


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    mask = (np.arange(S) < np.array(LENGTHS)[:, None]).astype(np.int32)
    ids = rng.integers(5, TOY.vocab_size, mask.shape).astype(np.int32) * mask
    indices = np.full(mask.shape, -1, np.int32)
    for row, length in enumerate(LENGTHS):
        if length:
            ids[row, 0], ids[row, length - 1] = CLS, SEP
        words = WORDS.get(row, [])
        indices[row, 1 : 1 + len(words)] = words
    return {"input_word_ids": ids, "input_mask": mask, "word_indices": indices}


@pytest.fixture(scope="module")
def encoded():
    rng = np.random.default_rng(1)
    states = [
        rng.normal(size=(len(LENGTHS), S, H)).astype(np.float32)
        for _ in range(TOY.num_hidden_layers + 1)
    ]
    pooled = rng.normal(size=(len(LENGTHS), H)).astype(np.float32)
    return EncoderOutputs(states[0], states[1:], pooled).as_dict()


def compute(encoded, batch, device="tpu", **output):
    specs = plan_outputs([OutputConfig.of({"name": "o", **output})], TOY)
    with traced_for(device):
        (values,) = compute_outputs(encoded, batch, specs, (CLS, SEP)).values()
    return values.numpy()


@pytest.mark.parametrize("device", ["tpu", "cpu"])  # one takes products, the other gathers
@pytest.mark.parametrize("pooling", POOLINGS["span"])
def test_spans(encoded, batch, pooling, device):
    """Nested, equal and overlapping ones, of one token and of a whole row; and empty slots."""
    spans = {0: [(0, 12), (3, 4), (1, 6), (2, 5), (3, 4), (10, 12), (1, 9)], 1: [], 2: [(6, 7)]}
    bounds = np.full((2, len(LENGTHS), S), -1, np.int32)
    for row, found in spans.items():
        bounds[:, row, : len(found)] = np.array(found, int).reshape(-1, 2).T
    given = batch | {"span_begins": bounds[0], "span_ends": bounds[1]}
    values = compute(encoded, given, device, layers=[-1], level="span", pooling=pooling)
    for row in range(len(LENGTHS)):
        state = EncoderOutputs.from_dict(encoded).states[-1][row].astype(np.float64)
        found = spans.get(row, [])
        for got, (begin, end) in zip(values[row], found, strict=False):
            want = numpy_outputs.pool_word(state[begin:end], pooling)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
        assert not values[row, len(found) :].any()


def states_of(encoded, row):
    states = EncoderOutputs.from_dict(encoded).states
    return [state[row, : LENGTHS[row]].astype(np.float64) for state in states]


NAMES = {name for level in ("word", "span", "sequence") for name in POOLINGS[level]}


@pytest.mark.parametrize(
    ("computed", "names"),
    [
        (pooling._UNIT_POOLERS, NAMES - {"pooler", *DOUBLE_WIDTH}),
        (pooling._UNITS, {*POOLINGS} - {"token"}),
        (pooling._COMBINERS, {*get_args(Combine)}),
        (COMPUTE, KINDS.keys()),
    ],
    ids=["pooling", "level", "combine", "kind"],
)
def test_each_name_of_the_settings_is_computed_and_no_other(computed, names):
    assert computed.keys() == names


COMBINATIONS = [
    {"layers": [-1]},
    {"layers": ["embeddings"]},
    {"layers": [-1, 0, "embeddings"], "combine": "sum"},
    {"layers": [0, -1], "combine": "mean"},
    {"layers": [-1, "embeddings", 0], "combine": "concat"},
    {"layers": [-1, -2], "combine": "weighted", "weights": [0.75, -2.0]},
    {"layers": [-1], "dim": 3},
    {"layers": [-1, -2], "combine": "concat", "dim": 9, "normalize": True},
]


@pytest.mark.parametrize("output", COMBINATIONS, ids=str)
def test_tokens(encoded, batch, output):
    values = compute(encoded, batch, **output)
    for row, length in enumerate(LENGTHS):
        wanted = numpy_outputs.combine(states_of(encoded, row), output)
        wanted = numpy_outputs.finish(wanted, output)
        np.testing.assert_allclose(values[row, :length], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("output", [COMBINATIONS[0], COMBINATIONS[2], COMBINATIONS[7]], ids=str)
@pytest.mark.parametrize("pooling", POOLINGS["word"])
@pytest.mark.parametrize("device", ["tpu", "cpu"])
def test_words(encoded, batch, output, pooling, device):
    values = compute(encoded, batch, device, level="word", pooling=pooling, **output)
    for row in range(len(LENGTHS)):
        tokens = numpy_outputs.combine(states_of(encoded, row), output)
        words = np.array([-1, *WORDS.get(row, []), -1])
        for word in range(words.max() + 1):
            pieces = tokens[: len(words)][words[: len(tokens)] == word]
            wanted = numpy_outputs.finish(numpy_outputs.pool_word(pieces, pooling), output)
            np.testing.assert_allclose(values[row, word], wanted, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(values[row, words.max() + 1 :], 0)


@pytest.mark.parametrize("output", [COMBINATIONS[0], COMBINATIONS[2], COMBINATIONS[7]], ids=str)
@pytest.mark.parametrize(
    ("pooling", "special_tokens"),
    [("cls", True), ("cls+max+sqrt_len_mean", True), ("mean_max+last", False)]
    + [(p, s) for p in POOLINGS["sequence"] if p not in ("cls", "pooler") for s in (True, False)],
)
def test_sequences(encoded, batch, output, pooling, special_tokens):
    settings = {"level": "sequence", "pooling": pooling, "special_tokens": special_tokens}
    values = compute(encoded, batch, **settings, **output)
    assert np.isfinite(values).all()
    for row, length in enumerate(LENGTHS[:-1]):
        tokens = numpy_outputs.combine(states_of(encoded, row), output)
        special = np.isin(np.arange(length), [0, length - 1])
        wanted = numpy_outputs.pool_sequence(tokens, special, pooling, special_tokens)
        wanted = numpy_outputs.finish(wanted, output)
        np.testing.assert_allclose(values[row], wanted, rtol=0, atol=1e-5)


def test_pooler_is_the_encoders_pooled_output(encoded, batch):
    values = compute(encoded, batch, level="sequence", pooling="pooler", dim=5, normalize=True)
    wanted = numpy_outputs.finish(encoded["pooled_output"], {"dim": 5, "normalize": True})
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes_round_once_at_the_end(encoded, batch, dtype):
    settings = {"layers": [-1, -2], "combine": "sum"}
    wide = compute(encoded, batch, **settings)
    values = compute(encoded, batch, **settings, dtype=dtype)
    assert values.dtype == np.dtype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(values, wide.astype(values.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "XLA"])
def test_gradients_are_numbers_where_rows_words_and_spans_are_empty(jit_compile):
    """They agree with the differences of the loss in their own direction."""
    found = gradients.gradients(jit_compile)
    assert all(np.isfinite(each).all() for each in found)
    states = gradients.states()
    ends = [
        float(gradients.loss(*(x + factor * d for x, d in zip(states, found, strict=True))))
        for factor in (1e-3, -1e-3)
    ]
    wanted = 2e-3 * sum((each**2).sum() for each in found)
    np.testing.assert_allclose(ends[0] - ends[1], wanted, rtol=1e-3)
