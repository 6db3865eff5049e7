"""What is asked for: LAYERS, names, widths, and what does not fit together."""

import dataclasses

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import Feature
from bert_features.config.kinds import KINDS
from bert_features.config.output_specs import blocks_needed, output_names, plan_outputs
from bert_features.config.outputs import OUTPUT_SETTINGS, OutputConfig
from bert_features.config.poolings import POOLING_ALIASES, POOLINGS, AutoPooling, DenseModule
from bert_features.errors import ConfigError
from tests.other_values import OTHERS
from tests.toy import TOY  # three blocks of width 8


def plan(*outputs, **auto):
    return plan_outputs([OutputConfig.of(output) for output in outputs], TOY, **auto)


@pytest.mark.parametrize(
    ("written", "layers", "states"),
    [
        ("0-2", (0, 1, 2), (1, 2, 3)),
        ("-3--1", (-3, -2, -1), (1, 2, 3)),
        (["2-0"], (2, 1, 0), (3, 2, 1)),
        ("all", ("all",), (1, 2, 3)),
        ("embeddings, all", ("embeddings", "all"), (0, 1, 2, 3)),
    ],
)
def test_ranges_and_the_word_all(written, layers, states):
    output = {"layers": written, "name": "x"}
    assert OutputConfig.of(output).layers == layers
    assert ExtractConfig(layers=written).outputs[0].layers == layers
    assert tuple(spec.states[0] for spec in plan(output)) == states
    assert [spec.name for spec in plan(output)] == output_names(
        [OutputConfig.of(output)], num_layers=3
    )
    weights = tuple(range(len(states)))
    (spec,) = plan({"layers": written, "combine": "weighted", "weights": weights})
    assert spec.states == states
    with pytest.raises(ConfigError, match="2 numbers for"):
        plan({"layers": written, "combine": "weighted", "weights": [1, 2]})


def test_layers_apart_are_named_as_in_the_official_script():
    specs = plan({"layers": (-1, "embeddings")})
    assert [(s.name, s.layers, s.states, s.width) for s in specs] == [
        ("layer_output_0", (-1,), (3,), 8),
        ("layer_output_1", ("embeddings",), (0,), 8),
    ]


def test_names_and_widths():
    specs = plan(
        {"layers": [-1, -2], "combine": "concat"},
        {"name": "one", "layers": [0], "dtype": "float16"},
        {"name": "two", "layers": [0, 1], "level": "sequence", "pooling": "mean_max"},
        {"name": "words", "layers": [0], "level": "word", "pooling": "first_last", "dim": 9},
        {"name": "cls", "level": "sequence", "pooling": "pooler"},
    )
    assert [(s.name, s.width, s.dtype) for s in specs] == [
        ("features", 16, "float32"),
        ("one", 8, "float16"),
        ("two_0", 16, "float32"),
        ("two_1", 16, "float32"),
        ("words", 9, "float32"),
        ("cls", 8, "float32"),
    ]
    assert [s.pooling for s in specs] == [
        "none", "none", "mean_max", "mean_max", "first_last", "pooler"
    ]  # fmt: skip
    assert blocks_needed(specs) == 3
    assert blocks_needed(specs[1:2]) == 1
    assert blocks_needed(plan({"layers": ["embeddings"]})) == 0


def test_the_metadata_of_an_output_is_that_of_a_feature():
    output = {"name": "a", "layers": [-1, 0], "combine": "weighted", "weights": [0.25, 0.75]}
    (spec,) = plan(output | {"level": "sequence", "special_tokens": False, "normalize": True})
    assert spec.states == (3, 1)
    feature = Feature(
        *("a", (-1, 0), "weighted", 8, "float32", "sequence", "mean", (0.25, 0.75)),
        special_tokens=False,
        normalize=True,
    )
    whole = {
        name: value
        for name, value in dataclasses.asdict(feature).items()
        if name not in ("kind", "scale", "heads", "labelled")
    }
    assert spec.to_metadata() == feature.to_metadata() == whole
    assert "states" not in spec.to_metadata()


def test_poolings_side_by_side():
    output = {"layers": [-1], "level": "sequence", "pooling": "cls+mean_max+sqrt_len_mean"}
    (spec,) = plan(output)
    assert (spec.pooling, spec.width) == ("cls+mean_max+sqrt_len_mean", 32)
    assert plan(output | {"dim": 9})[0].width == 9


def test_auto_is_what_the_checkpoint_says_where_the_output_does_not():
    auto = {"level": "sequence", "pooling": "auto"}
    (mean,) = plan(auto)
    assert (mean.pooling, mean.layers, mean.normalize) == ("mean", (-1,), False)
    own = AutoPooling("cls+max", normalize=True)
    first, second = plan(
        {"name": "a", **auto}, {"name": "b", **auto, "layers": [0], "normalize": False}, auto=own
    )
    assert (first.pooling, first.layers, first.normalize, first.width) == (
        *("cls+max", (-1,), True, 16),
    )
    assert (second.pooling, second.layers, second.normalize) == ("cls+max", (0,), False)


def test_multi_vectors_are_projected_from_the_last_layer():
    modules = (DenseModule("1_Dense", 8, 5, "linear", has_bias=False), "normalize")
    (late,) = plan({"kind": "multi_vector"}, auto=AutoPooling(of_tokens=modules))
    assert (late.layers, late.states, late.width, late.normalize) == ((-1,), (3,), 5, True)


def test_terms_and_pieces_have_a_usual_number():
    outputs = [OutputConfig.of({"kind": kind}) for kind in ("sparse", "masked_lm")]
    sparse, masked, ids = plan_outputs(outputs, TOY.model_copy(update={"vocab_size": 999}))
    assert (sparse.max_units, sparse.layers, sparse.states) == (256, (-1,), (3,))
    assert (masked.width, ids.width, masked.layers, masked.states) == (5, 5, (-1,), (3,))


def test_the_names_of_bert_as_service():
    for alias, name in POOLING_ALIASES.items():
        level = "token" if name == "none" else "sequence"
        assert name in POOLINGS[level]
        assert OutputConfig.of({"level": level, "pooling": alias}).pooling == name


@pytest.mark.parametrize("layers", [[-1], [-1, -2]])
def test_the_names_that_are_planned(layers):
    """The same with a checkpoint as without."""
    outputs = [
        {"name": "a", "layers": layers},
        {"name": "b", "combine": "sum"},
        {"name": "c", "level": "sequence", "pooling": "pooler"},
        {"level": "sequence"},
    ]
    config = ExtractConfig.of({"outputs": outputs, "layers": layers})
    names = output_names(config.outputs)
    assert names == [spec.name for spec in plan_outputs(config.outputs, TOY)]
    assert names[-1] == ("features" if layers == [-1] else "layer_output_1")


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "layers"])
def test_another_kind_than_layers_refuses_what_it_does_not_list(kind):
    for name in {*OUTPUT_SETTINGS} - {"kind", "level"} - KINDS[kind].settings:
        with pytest.raises(ConfigError, match=rf"^{name} (has no meaning for|is for) "):
            OutputConfig.of({"kind": kind, name: OTHERS[name][name]})
