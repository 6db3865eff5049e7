"""BertConfig: both families' files, and errors that name the key."""

import json

import pytest

from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

GOOGLE = {"vocab_size": 30522, "hidden_act": "gelu", "pooler_type": "first_token_transform"}


def read(tmp_path, values):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return BertConfig.from_json_file(path)


def test_the_activation_follows_the_family(tmp_path):
    assert read(tmp_path, GOOGLE).hidden_act == "gelu_tanh"
    assert read(tmp_path, GOOGLE | {"model_type": "bert"}).hidden_act == "gelu_erf"
    new = GOOGLE | {"model_type": "bert", "hidden_act": "gelu_new"}
    assert read(tmp_path, new).hidden_act == "gelu_tanh"


def test_defaults_are_bert_base(tmp_path):
    config = read(tmp_path, GOOGLE)
    assert (config.num_hidden_layers, config.hidden_size, config.head_size) == (12, 768, 64)
    assert config.layer_norm_eps == 1e-12


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "vocab_size is missing"),
        (GOOGLE | {"hidden_size": "768 wide"}, r"hidden_size: .*received '768 wide'"),
        (GOOGLE | {"hidden_size": 100}, "100 is not a multiple of num_attention_heads 12"),
        (GOOGLE | {"num_hidden_layers": 0}, "num_hidden_layers"),
        (GOOGLE | {"vocab_size": 10**12}, r"vocab_size: .*less than 2147483648"),
        (
            GOOGLE | {"max_position_embeddings": 10**4000},
            r"max_position_embeddings: .*received 1000",
        ),
        *(
            (GOOGLE | {name: value}, rf"{name}: .*received {value}")
            for name in ("layer_norm_eps", "hidden_dropout_prob", "initializer_range")
            for value in (float("nan"), float("inf"), -1.0)
        ),
        (GOOGLE | {"layer_norm_eps": 0}, "layer_norm_eps: .*received 0"),
        # 0 in float32, and so NaN for a token of equal values.
        (GOOGLE | {"layer_norm_eps": 1e-46}, "layer_norm_eps: .*received 1e-46"),
        (GOOGLE | {"num_hidden_layers": float("nan")}, "num_hidden_layers"),
        (GOOGLE | {"hidden_act": "swish"}, "hidden_act"),
        (GOOGLE | {"hidden_act": ["gelu"]}, "hidden_act"),
        (GOOGLE | {"model_type": "deberta"}, "model_type is 'deberta'"),
        (GOOGLE | {"position_embedding_type": "relative_key"}, "only 'absolute' is supported"),
        (GOOGLE | {"is_decoder": True}, "is_decoder is True"),
    ],
)
def test_what_is_refused(tmp_path, values, message):
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, values)
