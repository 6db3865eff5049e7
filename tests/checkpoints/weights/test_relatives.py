"""NomicBERT and GTE in both forms: that of their makers' code, and that of transformers 5."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_head, read_weights
from bert_features.checkpoints.weights.weight_readers import open_weights
from bert_features.errors import CheckpointError
from tests import families
from tests.weights import assert_same

# The settings of nomic-embed-text-v1.5 and gte-base-en-v1.5, of the toys' sizes.
NOMIC = {
    **{"model_type": "nomic_bert", "activation_function": "swiglu", "n_embd": 16, "n_head": 2},
    **{"n_inner": 24, "n_layer": 3, "n_positions": 24, "layer_norm_epsilon": 1e-12},
    **{"rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
    **{"rotary_emb_scale_base": None, "rotary_scaling_factor": None, "prenorm": False},
    **{"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "causal": False},
    **{"parallel_block": False, "use_rms_norm": False, "max_trained_positions": 2048},
    **{"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "initializer_range": 0.02},
    **{"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    **{"type_vocab_size": 2, "vocab_size": 30, "summary_type": "cls_index"},
}
GTE = {
    **{"model_type": "new", "architectures": ["NewModel"], "position_embedding_type": "rope"},
    **{"rope_theta": 500000, "rope_scaling": {"type": "ntk", "factor": 2.0}, "pack_qkv": True},
    **{"layer_norm_type": "layer_norm", "layer_norm_eps": 1e-12, "hidden_act": "gelu"},
    **{"logn_attention_scale": False, "logn_attention_clip1": False, "unpad_inputs": "true"},
    **{"use_memory_efficient_attention": "false", "attention_probs_dropout_prob": 0.0},
    **{"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3},
    **{"intermediate_size": 24, "max_position_embeddings": 24, "type_vocab_size": 0},
    **{"vocab_size": 30, "pad_token_id": 0},
}
FORMS = {"nomic_bert": (NOMIC, "bert."), "gte": (GTE, "new.")}


@pytest.mark.parametrize("name", FORMS)
def test_files_of_the_makers_code(name, tmp_path):
    config, prefix = FORMS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored = load_file(families.DATA / name / "model.safetensors")
    assert any("Wqkv" in key or "qkv_proj" in key for key in stored)
    renamed = {key.replace(f"{name}.", prefix): value for key, value in stored.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    found = find_checkpoint(tmp_path)
    assert found.config == families.checkpoint(name).config
    assert_same(read_weights(found, pooler=True), families.weights(name))
    assert has_head(found)


# Of the first layer, as state_dict() of transformers 5.24 lists them.
TODAY = {
    "self_attn.q_proj": (16, 16),
    "self_attn.k_proj": (16, 16),
    "self_attn.v_proj": (16, 16),
    "self_attn.o_proj": (16, 16),
    "mlp.gate_proj": (24, 16),
    "mlp.up_proj": (24, 16),
    "mlp.down_proj": (16, 24),
    "post_attention_layernorm": (16,),
    "post_mlp_layernorm": (16,),
}


@pytest.mark.parametrize("name", FORMS)
def test_files_of_transformers(name, tmp_path):
    folder = families.DATA / name
    reader = open_weights(folder / "model.safetensors", "safetensors")
    shapes = reader.shapes()
    scope = f"{name}.layers.0."
    weights = {key: shape for key, shape in shapes.items() if key.startswith(scope)}
    biases = {key for key in weights if key.endswith(".bias")}
    assert {k: v for k, v in weights.items() if k not in biases} == {
        f"{scope}{part}.weight": shape for part, shape in TODAY.items()
    }
    without = () if name == "nomic_bert" else ("mlp.gate_proj", "mlp.up_proj")
    norms = [part for part in TODAY if "norm" in part]
    with_bias = norms if name == "nomic_bert" else [p for p in TODAY if p not in without]
    assert biases == {f"{scope}{part}.bias" for part in with_bias}
    save_file({key: reader.read(key) for key in shapes}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert_same(read_weights(find_checkpoint(tmp_path), pooler=True), families.weights(name))


@pytest.mark.parametrize("used", [True, False])
def test_the_tasks_of_ernie(used, tmp_path):
    """The first is part of every type of token, if the config says that tasks are used."""
    folder = families.DATA / "ernie"
    stored = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    save_file(stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"use_task_id": used}))
    found = find_checkpoint(tmp_path)
    assert found.config.task_type_vocab_size == (3 if used else 0)
    want = stored["ernie.embeddings.token_type_embeddings.weight"]
    if used:
        want = want + stored["ernie.embeddings.task_type_embeddings.weight"][0]
    weights = read_weights(found)
    np.testing.assert_array_equal(weights["embeddings/token_type_embeddings"], want)
    assert "embeddings/task_type_embeddings" not in weights
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    with pytest.raises(CheckpointError, match=r"1 unexpected: ernie\.\S+task_type_embeddings"):
        read_weights(find_checkpoint(tmp_path))
