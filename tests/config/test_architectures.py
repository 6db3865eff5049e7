"""Config files of BERT's relatives, under the keys of `BertConfig`."""

import json

import pytest

from bert_features.checkpoints.convert import config_values
from bert_features.config.architectures import ARCHITECTURES, OF_RELATIVES
from bert_features.config.bert_config import BertConfig, config_family, unknown_keys
from tests.reference.config_changes import PUBLISHED
from tests.reference.settings_cases import DATA

# The keys of published files that matter here: albert_config.json of albert_base (Google), and
# config.json of albert-base-v2, electra-small, distilbert-base, roberta-base, xlm-roberta-base.
_TWELVE = {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768}
ALBERT = {
    **_TWELVE,
    **{"embedding_size": 128, "num_hidden_groups": 1, "inner_group_num": 1, "vocab_size": 30000},
    **{"intermediate_size": 3072, "down_scale_factor": 1, "gap_size": 0, "hidden_act": "gelu"},
}
ELECTRA = {
    "model_type": "electra",
    **{"embedding_size": 128, "hidden_size": 256, "intermediate_size": 1024, "vocab_size": 30522},
    **{"num_attention_heads": 4, "num_hidden_layers": 12, "hidden_act": "gelu"},
}
DISTILBERT = {
    "model_type": "distilbert",
    **{"activation": "gelu", "attention_dropout": 0.1, "dim": 768, "dropout": 0.1},
    **{"hidden_dim": 3072, "max_position_embeddings": 512, "n_heads": 12, "n_layers": 6},
    **{"sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 30522},
}
ROBERTA = {
    "model_type": "roberta",
    **_TWELVE,
    **{"max_position_embeddings": 514, "pad_token_id": 1, "type_vocab_size": 1},
    **{"layer_norm_eps": 1e-05, "vocab_size": 50265, "hidden_act": "gelu"},
}
# ModernBERT-base, which transformers 4 wrote; later files have `rope_parameters` instead.
MODERNBERT = {
    "model_type": "modernbert",
    **{"attention_bias": False, "mlp_bias": False, "norm_bias": False, "norm_eps": 1e-05},
    **{"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "hidden_size": 768},
    **{"hidden_activation": "gelu", "intermediate_size": 1152, "layer_norm_eps": 1e-05},
    **{"local_attention": 128, "local_rope_theta": 10000.0, "max_position_embeddings": 8192},
    **{"num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50283},
    **{"position_embedding_type": "absolute", "vocab_size": 50368},
}


NOMIC = {"model_type": "nomic_bert", "vocab_size": 30, "n_embd": 64, "n_head": 4}
GTE = {"model_type": "gte", "vocab_size": 30, "hidden_size": 64, "num_attention_heads": 4}
MPNET = {"model_type": "mpnet", "vocab_size": 30, "type_vocab_size": 2}


def of(values):
    return BertConfig.from_dict(values, family=config_family(values))


# Values of a file, and attributes of its config.
FOLLOWED = [
    (ALBERT, {"model_type": "albert", "embedding_width": 128, "hidden_size": 768}),
    (ALBERT, {"distinct_blocks": 1, "hidden_act": "gelu_tanh"}),  # Google's gelu
    (ELECTRA, {"has_pooler": False, "embedding_width": 128, "hidden_size": 256}),
    (ELECTRA, {"distinct_blocks": 12}),
    (DISTILBERT, {"hidden_size": 768, "num_hidden_layers": 6, "intermediate_size": 3072}),
    (DISTILBERT, {"type_vocab_size": 0, "has_pooler": False, "embedding_width": 768}),
    *(
        (ROBERTA | {"model_type": name}, {"positions": 512, "position_offset": 2})
        for name in ("roberta", "xlm-roberta", "camembert")
    ),
    (ROBERTA | {"pad_token_id": 0}, {"positions": 513, "position_offset": 1}),
    (MODERNBERT, {"positions": 8192, "pad_token_id": 50283, "hidden_act": "gelu_erf"}),
    (MODERNBERT, {"norm_first": True, "gated": True, "has_biases": False, "has_pooler": False}),
    (MODERNBERT | {"local_rope_theta": None}, {"local_rope_theta": 160000.0}),
    # The values of the classes in transformers 5.24, and of Alibaba's configuration.py.
    (NOMIC, {"positions": 2048, "global_rope_theta": 1000.0, "hidden_act": "silu"}),
    (NOMIC, {"type_vocab_size": 2, "biases": "norms", "pad_token_id": 0}),
    (GTE, {"positions": 8192, "global_rope_theta": 160000.0, "hidden_act": "gelu_erf"}),
    (GTE, {"type_vocab_size": 1, "biases": "ungated", "pad_token_id": 1}),
    (GTE | {"model_type": "new"}, {"model_type": "gte", "positions": 2048}),
    (GTE | {"model_type": "new"}, {"global_rope_theta": 10000.0}),
    (MPNET, {"positions": 510, "relative_attention_num_buckets": 32}),
    (NOMIC | {"activation_function": "geglu"}, {"hidden_act": "gelu_erf"}),
    (NOMIC | {"activation_function": "swiglu", "hidden_act": "gelu"}, {"hidden_act": "gelu_erf"}),
    (
        NOMIC | {"rotary_emb_base": 5, "rope_parameters": {"rope_theta": 7}},
        {"global_rope_theta": 7},
    ),
    # A base that grows with the row would be another one from there on.
    (
        NOMIC | {"n_positions": 9000, "rotary_scaling_factor": 2, "max_trained_positions": 100},
        {"positions": 100},
    ),
    (NOMIC | {"num_experts": 0, "head_dim": 16}, {"positions": 2048}),
    (GTE | {"rope_theta": 5, "rope_scaling": None}, {"global_rope_theta": 5}),
    (GTE | {"rope_scaling": {"type": "linear", "factor": 3}}, {"rope_divisor": 3}),
    (GTE | {"rope_parameters": {"rope_type": "ntk", "factor": 16}}, {"rope_divisor": 2**0.5}),
    (
        # Twelve heads of 64 values if the file names neither.
        {"model_type": "gte", "vocab_size": 30, "rope_parameters": {"type": "ntk", "factor": 16}},
        {"rope_divisor": 2**0.125},
    ),
    (
        GTE | {"rope_theta": 5, "rope_scaling": {"type": "ntk", "factor": 4}},
        {"global_rope_theta": 20},
    ),
    (GTE | {"pack_qkv": False, "unpad_inputs": "true"}, {"positions": 8192}),
]


@pytest.mark.parametrize(("values", "wanted"), FOLLOWED)
def test_settings_that_are_followed(values, wanted):
    config = of(values)
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert of(config_values(config, "huggingface")) == config
    assert BertConfig(**config.model_dump(mode="json")) == config
    rotary = {key for key in config.model_dump() if "local" in key}
    assert bool(rotary) is (config.model_type == "modernbert")


def test_the_blocks_of_albert():
    assert [of(ALBERT).block_of(layer) for layer in range(12)] == [0] * 12
    groups = of(ALBERT | {"num_hidden_groups": 3})
    # google-research/albert: int(layer / layers * groups)
    assert [groups.block_of(layer) for layer in range(12)] == [0] * 4 + [1] * 4 + [2] * 4


def test_modernbert():
    config, whole, local = of(MODERNBERT), (160000.0, None), (10000.0, 64)
    assert [config.attention_of(i) for i in range(4)] == [whole, local, local, whole]
    table = {
        f"{kind}_attention": {"rope_theta": t} for kind, t in (("full", 7.0), ("sliding", 5.0))
    }
    later = of(MODERNBERT | {"rope_parameters": table})
    assert (later.global_rope_theta, later.local_rope_theta) == (7.0, 5.0)
    kinds = ["sliding_attention", "full_attention"] * 11
    mixed = of(MODERNBERT | {"layer_types": kinds, "global_attn_every_n_layers": None})
    assert [mixed.attention_of(i) for i in range(3)] == [local, whole, local]


ALBERT_CLASS = ALBERT | {
    **{"model_type": "albert", "hidden_size": 4096, "num_attention_heads": 64},
    **{"intermediate_size": 16384, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0},
    "attention_probs_dropout_prob": 0.0,
}
ROBERTA_CLASS = {"model_type": "roberta", "vocab_size": 50265, "pad_token_id": 1}
ERNIE_CLASS = {"model_type": "ernie", "vocab_size": 18000, "task_type_vocab_size": 3}


@pytest.mark.parametrize(
    "values",
    [ALBERT_CLASS, ELECTRA, DISTILBERT, ROBERTA_CLASS, ERNIE_CLASS, MODERNBERT],
    ids=lambda values: values["model_type"],
)
def test_a_key_that_is_absent_has_the_value_of_the_class_in_transformers(values):
    present = {key: values[key] for key in ("model_type", "vocab_size")} | {"use_task_id": True}
    assert of(present) == of(values | {"use_task_id": True})


def test_a_bert_file_may_hold_the_keys_of_relatives_with_other_meanings():
    stray = {"pad_token_id": None, "embedding_size": 99, "has_pooler": "no"}
    config = of({"vocab_size": 9, "model_type": "bert", **stray})
    assert config == BertConfig(vocab_size=9, hidden_act="gelu_erf")
    assert not {"model_type", *stray} & config.model_dump().keys()  # written as ever


# The keys of Google's bert_config.json, and two of transformers.
OF_BERT = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act "
    "hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size "
    "initializer_range layer_norm_eps model_type"
)


def test_every_other_key_means_nothing_in_the_files_of_bert():
    assert BertConfig.model_fields.keys() - OF_BERT.split() == OF_RELATIVES


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_each_key_that_transformers_writes_is_in_a_table(model_type):
    written = json.loads((DATA / "config_keys.json").read_text())
    if model_type in written:
        assert unknown_keys(dict.fromkeys(written[model_type]) | {"model_type": model_type}) == []
    assert unknown_keys({"model_type": model_type, "emb_size": 3}) == ["emb_size"]


@pytest.mark.parametrize("model_type", [*PUBLISHED, "new"])
def test_no_key_of_published_files_is_unknown(model_type):
    keys = PUBLISHED["gte" if model_type == "new" else model_type]
    assert unknown_keys(dict.fromkeys(keys.split()) | {"model_type": model_type}) == []


def test_keys_that_an_architecture_does_not_read_are_unknown():
    stray = {"layer_norm_eps": 1.0, "type_vocab_size": 2, "hidden_act": "relu", "gated": True}
    assert unknown_keys(DISTILBERT | stray) == sorted(stray)
    assert of(DISTILBERT | stray) == of(DISTILBERT)


@pytest.mark.parametrize(
    ("values", "kind", "family"),
    [
        ({}, None, "google"),
        ({}, "tf1", "google"),
        ({}, "tf2", "google"),
        ({}, "safetensors", "huggingface"),
        ({"architectures": ["BertModel"]}, "tf1", "huggingface"),
    ],
)
def test_the_family_is_shown_by_the_config_or_else_by_the_weights(values, kind, family):
    assert config_family(values, kind) == family
