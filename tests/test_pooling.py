"""LAYERS: which entries mean which states, and the combinations of hand-made ones."""

import numpy as np
import pytest

from bert_features.errors import ConfigError
from bert_features.pooling import blocks_needed, combine_states, plan_outputs, resolve_layers


@pytest.mark.parametrize(
    ("layers", "states"),
    [
        ((-1, -2, -3, -4), (12, 11, 10, 9)),
        ((0, 11, -12 + 1), (1, 12, 2)),
        (("embeddings", -12), (0, 1)),
    ],
)
def test_entries_index_the_blocks_from_either_end(layers, states):
    assert resolve_layers(layers, 12) == states


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((12,), r"layer 12 is outside \[-12, 11\]: this checkpoint has 12 layers"),
        ((-13,), r"layer -13 is outside \[-12, 11\]"),
        ((-1, 11), "11 and -1 are the same layer of 12; name each once"),
        (("embeddings", "embeddings"), "the same layer"),
        (("pooler",), "layer 'pooler' is neither a number nor the word 'embeddings'"),
        ((), "no layers; name at least one"),
    ],
)
def test_entries_that_are_refused(layers, message):
    with pytest.raises(ConfigError, match=message):
        resolve_layers(layers, 12)


def test_outputs_have_the_official_names():
    outputs = plan_outputs((-1, "embeddings"), "none", 3)
    assert [(o.name, o.layers, o.states) for o in outputs] == [
        ("layer_output_0", (-1,), (3,)),
        ("layer_output_1", ("embeddings",), (0,)),
    ]
    assert blocks_needed(outputs) == 3
    (combined,) = plan_outputs((-2, "embeddings"), "concat", 3)
    assert (combined.name, combined.states, combined.width(8)) == ("features", (2, 0), 16)
    assert blocks_needed([combined]) == 2
    assert plan_outputs((0, 1), "sum", 3)[0].width(8) == 8


def test_unknown_combination():
    with pytest.raises(ConfigError, match="combine is 'max'; allowed: none, sum, mean, concat"):
        plan_outputs((-1,), "max", 3)


@pytest.mark.parametrize(
    ("combine", "expected"),
    [("sum", [[[11.0, 22.0]]]), ("mean", [[[5.5, 11.0]]]), ("concat", [[[10.0, 20.0, 1.0, 2.0]]])],
)
def test_combinations_by_hand(combine, expected):
    states = [np.array([[[v, 2 * v]]], np.float32) for v in (1.0, 100.0, 10.0)]
    (output,) = plan_outputs((1, "embeddings"), combine, 2)
    np.testing.assert_array_equal(combine_states(states, output, "float32"), expected)


def test_a_sum_is_made_in_float32():
    import tensorflow as tf

    states = [tf.constant([[[v]]], tf.bfloat16) for v in (256.0, 1.0)]
    (output,) = plan_outputs(("embeddings", 0), "sum", 1)
    # 257 is no bfloat16: a sum in bfloat16 would give 256.
    assert combine_states(states, output, "float32").numpy().item() == 257.0
