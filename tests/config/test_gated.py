"""Config files of NomicBERT, GTE and MPNet: what is read, and what is refused by its name."""

import pytest

from bert_features.checkpoints.convert import config_values
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

NOMIC = {"model_type": "nomic_bert", "vocab_size": 30, "n_embd": 64, "n_head": 4}
GTE = {"model_type": "gte", "vocab_size": 30, "hidden_size": 64, "num_attention_heads": 4}


def read(values):
    return BertConfig.from_dict(values, family="huggingface")


def test_keys_that_are_absent():
    """The values of the classes in transformers 5.24, and of Alibaba's configuration.py."""
    nomic, gte = (read({"model_type": t, "vocab_size": 30}) for t in ("nomic_bert", "gte"))
    assert (nomic.positions, nomic.global_rope_theta, nomic.hidden_act) == (2048, 1000.0, "silu")
    assert (nomic.type_vocab_size, nomic.biases, nomic.pad_token_id) == (2, "norms", 0)
    assert (gte.positions, gte.global_rope_theta, gte.hidden_act) == (8192, 160000.0, "gelu_erf")
    assert (gte.type_vocab_size, gte.biases, gte.pad_token_id) == (1, "ungated", 1)
    new = read({"model_type": "new", "vocab_size": 30})
    assert (new.model_type, new.positions, new.global_rope_theta) == ("gte", 2048, 10000.0)
    mpnet = read({"model_type": "mpnet", "vocab_size": 30, "type_vocab_size": 2})
    assert (mpnet.positions, mpnet.relative_attention_num_buckets) == (510, 32)
    for config in (nomic, gte, new, mpnet):
        assert read(config_values(config, "huggingface")) == config


READ = [
    (NOMIC | {"activation_function": "geglu"}, "hidden_act", "gelu_erf"),
    (NOMIC | {"activation_function": "swiglu", "hidden_act": "gelu"}, "hidden_act", "gelu_erf"),
    (NOMIC | {"n_positions": 8192}, "positions", 8192),
    (NOMIC | {"rotary_emb_base": 5, "rope_parameters": {"rope_theta": 7}}, "global_rope_theta", 7),
    # A base that grows with the row would be another one from there on.
    (
        NOMIC | {"n_positions": 9000, "rotary_scaling_factor": 2, "max_trained_positions": 100},
        *("positions", 100),
    ),
    (NOMIC | {"num_experts": 0, "head_dim": 16}, "positions", 2048),
    (GTE | {"rope_theta": 5, "rope_scaling": None}, "global_rope_theta", 5),
    (GTE | {"rope_theta": 5, "rope_scaling": {"type": "linear", "factor": 3}}, "rope_divisor", 3),
    (GTE | {"rope_parameters": {"rope_type": "ntk", "factor": 16}}, "rope_divisor", 2**0.5),
    (
        GTE | {"rope_theta": 5, "rope_scaling": {"type": "ntk", "factor": 4}},
        *("global_rope_theta", 20),
    ),
    (GTE | {"pack_qkv": False, "unpad_inputs": "true"}, "positions", 8192),
]


@pytest.mark.parametrize(("values", "key", "want"), READ)
def test_settings_that_are_followed(values, key, want):
    assert getattr(read(values), key) == want


DEFAULT = {"vocab_size": 30}
REFUSED = [
    *((NOMIC | {key: True}, f"{key} is True") for key in ("prenorm", "use_rms_norm", "causal")),
    *((NOMIC | {f"{key}_bias": True}, key) for key in ("qkv_proj", "mlp_fc1", "mlp_fc2")),
    (NOMIC | {"num_experts": 8}, "num_experts is 8"),
    (NOMIC | {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5; only 1.0"),
    (NOMIC | {"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True"),
    (NOMIC | {"head_dim": 8}, "head_dim is 8; allowed: None, 16"),
    (NOMIC | {"activation_function": "gelu"}, "activation_function is 'gelu'; allowed: swiglu"),
    (GTE | {"logn_attention_scale": True}, "logn_attention_scale is True"),
    (GTE | {"layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm'; only 'layer_norm'"),
    (GTE | {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
    (
        GTE | {"rope_scaling": {"type": "yarn", "factor": 2}},
        "rope_type is 'yarn'; allowed: default",
    ),
    (GTE | {"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 1}}, "mixed_b is 1"),
    (GTE | {"rope_scaling": {"type": "ntk", "factor": 0.5}}, " factor: .* greater than"),
    (
        GTE | {"rope_scaling": {"type": "ntk", "factor": "two"}},
        "rope_scaling, rope_theta or hidden_size",
    ),
    (GTE | {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    (DEFAULT | {"model_type": "mpnet", "relative_attention_num_buckets": 16}, "num_buckets: .* 32"),
    (DEFAULT | {"model_type": "mpnet", "pad_token_id": 0}, "pad_token_id is 0; only 1"),
    # Jina v2 and v3, whose model_type is another encoder's.
    (DEFAULT | {"model_type": "bert", "position_embedding_type": "alibi"}, "is 'alibi'; only"),
    (
        DEFAULT | {"model_type": "xlm-roberta", "position_embedding_type": "rotary"},
        "position_embedding_type is 'rotary'; only 'absolute'",
    ),
    *(
        (DEFAULT | {"model_type": name}, f"model_type is '{name}'; only these encoders")
        for name in ("deberta-v2", "eurobert", "t5", "esm", "jina_embeddings_v3", "ernie_m")
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_settings_that_are_refused(values, message):
    with pytest.raises(CheckpointError, match=message):
        read(values)
