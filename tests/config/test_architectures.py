"""Config files of BERT's relatives, under the keys of `BertConfig`."""

import pytest

from bert_features.config.architectures import in_own_keys
from bert_features.config.bert_config import BertConfig, config_family
from bert_features.errors import CheckpointError

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


@pytest.mark.parametrize("values", [ALBERT, ELECTRA, DISTILBERT, ROBERTA])
def test_what_is_written_reads_the_same(values):
    config = of(values)
    assert of(config.model_dump(mode="json")) == config


def test_a_bert_file_may_hold_the_keys_of_relatives_with_other_meanings():
    stray = {"pad_token_id": None, "embedding_size": 99, "has_pooler": "no"}
    config = of({"vocab_size": 9, "model_type": "bert", **stray})
    assert config == BertConfig(vocab_size=9, hidden_act="gelu_erf")
    assert not {"model_type", *stray} & config.model_dump().keys()  # written as ever


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "deberta-v2"}, "model_type is 'deberta-v2'; only these.*'bert', 'albert'"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\]; only these"),
        (ALBERT | {"inner_group_num": 2}, "inner_group_num is 2; only 1 is supported"),
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
        (ELECTRA | {"type_vocab_size": -1}, "type_vocab_size"),
    ],
)
def test_values_that_do_not_fit(values, message):
    with pytest.raises(CheckpointError, match=message):
        of(values)
