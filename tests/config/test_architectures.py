"""Config files of BERT's relatives, under the keys of `BertConfig`."""

import json

import pytest

from bert_features.checkpoints.convert import config_values
from bert_features.config.architectures import ARCHITECTURES, OF_RELATIVES, in_own_keys
from bert_features.config.bert_config import BertConfig, config_family, unknown_keys
from bert_features.errors import CheckpointError
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


def of(values):
    return BertConfig.from_dict(values, family=config_family(values))


def test_albert_shares_one_block_and_widens_its_embeddings():
    config = of(ALBERT)
    assert (config.model_type, config.embedding_width, config.hidden_size) == ("albert", 128, 768)
    assert (config.distinct_blocks, config.hidden_act) == (1, "gelu_tanh")  # Google's gelu
    assert [config.block_of(layer) for layer in range(12)] == [0] * 12
    groups = of(ALBERT | {"num_hidden_groups": 3})
    # google-research/albert: int(layer / layers * groups)
    assert [groups.block_of(layer) for layer in range(12)] == [0] * 4 + [1] * 4 + [2] * 4


def test_electra_has_no_pooler():
    config = of(ELECTRA)
    assert (config.has_pooler, config.embedding_width, config.hidden_size) == (False, 128, 256)
    assert config.distinct_blocks == 12


def test_distilbert_has_its_own_keys_and_no_types():
    config = of(DISTILBERT)
    assert (config.hidden_size, config.num_hidden_layers, config.intermediate_size) == (
        *(768, 6, 3072),
    )
    assert (config.type_vocab_size, config.has_pooler, config.embedding_width) == (0, False, 768)


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert"])
def test_roberta_counts_positions_from_the_one_after_the_paddings(model_type):
    config = of(ROBERTA | {"model_type": model_type})
    assert (config.positions, config.position_offset, config.pad_token_id) == (512, 2, 1)
    other = of(ROBERTA | {"pad_token_id": 0})
    assert (other.positions, other.position_offset) == (513, 1)


def test_modernbert():
    config = of(MODERNBERT)
    assert (config.positions, config.pad_token_id, config.hidden_act) == (8192, 50283, "gelu_erf")
    assert (config.norm_first, config.gated, config.has_biases) == (True, True, False)
    assert (config.has_pooler, config.type_vocab_size) == (False, 0)
    whole, local = (160000.0, None), (10000.0, 64)
    assert [config.attention_of(i) for i in range(4)] == [whole, local, local, whole]
    table = {
        f"{kind}_attention": {"rope_theta": t} for kind, t in (("full", 7.0), ("sliding", 5.0))
    }
    later = of(MODERNBERT | {"rope_parameters": table})
    assert (later.global_rope_theta, later.local_rope_theta) == (7.0, 5.0)
    assert of(MODERNBERT | {"local_rope_theta": None}).local_rope_theta == 160000.0
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


@pytest.mark.parametrize("values", [ALBERT, ELECTRA, DISTILBERT, ROBERTA, MODERNBERT])
def test_what_is_written_reads_the_same(values):
    config = of(values)
    assert of(config_values(config, "huggingface")) == config
    assert BertConfig(**config.model_dump(mode="json")) == config
    rotary = {key for key in config.model_dump() if "rope" in key or "local" in key}
    assert bool(rotary) is (config.model_type == "modernbert")


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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "deberta-v2"}, "model_type is 'deberta-v2'; only these.*'bert', 'albert'"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\]; only these"),
        (ALBERT | {"inner_group_num": 2}, "inner_group_num is 2; only 1 is supported"),
        (MODERNBERT | {"mlp_bias": True}, "mlp_bias is True"),
        (
            MODERNBERT | {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_type is 'yarn'",
        ),
        (MODERNBERT | {"norm_first": False}, "norm_first is False"),
        (ELECTRA | {"has_pooler": True}, "has_pooler is True"),
        *(
            (MODERNBERT | wrong, "rope_parameters, .* is not what transformers writes")
            for wrong in (
                {"rope_parameters": [1]},
                {"rope_parameters": {"full_attention": 3}},
                {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
                {"rope_scaling": [2]},
            )
        ),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(CheckpointError, match=message):
        in_own_keys(values, "config")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (ALBERT | {"num_hidden_groups": 13}, "num_hidden_groups 13 is more than"),
        (ROBERTA | {"max_position_embeddings": 2}, "leaves no position after the 2"),
        (ROBERTA | {"pad_token_id": "<pad>"}, "pad_token_id"),
        (
            ROBERTA | {"pad_token_id": None},
            "pad_token_id is null",
        ),
        (MODERNBERT | {"layer_types": ["full_attention"] * 2}, "layer_types has 2 layers, num_hid"),
        (MODERNBERT | {"layer_types": ["conv"] * 22}, r"layer_types\.0: .*received 'conv'"),
        (MODERNBERT | {"layer_types": 3}, "layer_types: .*received 3"),
        (
            MODERNBERT | {"global_attn_every_n_layers": 0},
            "global_attn_every_n_layers: .*received 0",
        ),
        (ELECTRA | {"type_vocab_size": -1}, "type_vocab_size"),
    ],
)
def test_values_that_do_not_fit(values, message):
    with pytest.raises(CheckpointError, match=message):
        of(values)
