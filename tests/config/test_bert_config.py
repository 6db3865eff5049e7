"""BertConfig: both families' files; tests/data/messages.txt has what is refused."""

import json

from bert_features.config.bert_config import BertConfig

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
