"""The names of weights in the checkpoints of BERT's relatives.

The blocks that layers of an ALBERT share are numbered as the blocks of the others: its group is a
block here. NomicBERT's and GTE's own files have older names, whose arrays are several in today's.
"""

import re
from collections.abc import Mapping

_TF, _HF = "encoder/layer_{i}", "encoder.layer.{i}"  # a block of BERT
_ALBERT_TF1 = "encoder/transformer/group_{i}/inner_group_0"
_ALBERT = "encoder.albert_layer_groups.{i}.albert_layers.0"
_DISTIL = "transformer.layer.{i}"

_POST_NORM = {
    f"{_HF}.attention.self.query.": "layers.{i}.self_attn.q_proj.",
    f"{_HF}.attention.self.key.": "layers.{i}.self_attn.k_proj.",
    f"{_HF}.attention.self.value.": "layers.{i}.self_attn.v_proj.",
    f"{_HF}.attention.output.dense.": "layers.{i}.self_attn.o_proj.",
    f"{_HF}.attention.output.LayerNorm.": "layers.{i}.post_attention_layernorm.",
    f"{_HF}.intermediate.gate.": "layers.{i}.mlp.gate_proj.",
    f"{_HF}.intermediate.up.": "layers.{i}.mlp.up_proj.",
    f"{_HF}.output.dense.": "layers.{i}.mlp.down_proj.",
    f"{_HF}.output.LayerNorm.": "layers.{i}.post_mlp_layernorm.",
}

# By `model_type`: how names begin that differ from BERT's, in Hugging Face files and in TF1
# checkpoints -> how they begin instead.
RENAMED: dict[str, Mapping[str, str]] = {
    "albert": {
        "embeddings_project.": "encoder.embedding_hidden_mapping_in.",
        f"{_HF}.attention.self.": f"{_ALBERT}.attention.",
        f"{_HF}.attention.output.": f"{_ALBERT}.attention.",
        f"{_HF}.intermediate.dense.": f"{_ALBERT}.ffn.",
        f"{_HF}.output.dense.": f"{_ALBERT}.ffn_output.",
        f"{_HF}.output.LayerNorm.": f"{_ALBERT}.full_layer_layer_norm.",
        "pooler.dense.": "pooler.",
        "embeddings_project/": "encoder/embedding_hidden_mapping_in/",
        f"{_TF}/attention/output/LayerNorm/": f"{_ALBERT_TF1}/LayerNorm/",
        f"{_TF}/attention/": f"{_ALBERT_TF1}/attention_1/",
        f"{_TF}/intermediate/dense/": f"{_ALBERT_TF1}/ffn_1/intermediate/dense/",
        f"{_TF}/output/dense/": f"{_ALBERT_TF1}/ffn_1/intermediate/output/dense/",
        f"{_TF}/output/LayerNorm/": f"{_ALBERT_TF1}/LayerNorm_1/",
    },
    "distilbert": {
        f"{_HF}.attention.self.query.": f"{_DISTIL}.attention.q_lin.",
        f"{_HF}.attention.self.key.": f"{_DISTIL}.attention.k_lin.",
        f"{_HF}.attention.self.value.": f"{_DISTIL}.attention.v_lin.",
        f"{_HF}.attention.output.dense.": f"{_DISTIL}.attention.out_lin.",
        f"{_HF}.attention.output.LayerNorm.": f"{_DISTIL}.sa_layer_norm.",
        f"{_HF}.intermediate.dense.": f"{_DISTIL}.ffn.lin1.",
        f"{_HF}.output.dense.": f"{_DISTIL}.ffn.lin2.",
        f"{_HF}.output.LayerNorm.": f"{_DISTIL}.output_layer_norm.",
    },
    "mpnet": {
        f"{_HF}.attention.self.query.": f"{_HF}.attention.attn.q.",
        f"{_HF}.attention.self.key.": f"{_HF}.attention.attn.k.",
        f"{_HF}.attention.self.value.": f"{_HF}.attention.attn.v.",
        f"{_HF}.attention.output.dense.": f"{_HF}.attention.attn.o.",
        f"{_HF}.attention.output.LayerNorm.": f"{_HF}.attention.LayerNorm.",
    },
    "nomic_bert": _POST_NORM,
    "gte": _POST_NORM,
    "modernbert": {
        "embeddings.word_embeddings.": "embeddings.tok_embeddings.",
        "embeddings.LayerNorm.": "embeddings.norm.",
        f"{_HF}.attention.self.qkv.": "layers.{i}.attn.Wqkv.",
        f"{_HF}.attention.output.dense.": "layers.{i}.attn.Wo.",
        f"{_HF}.attention.output.LayerNorm.": "layers.{i}.attn_norm.",
        f"{_HF}.intermediate.dense.": "layers.{i}.mlp.Wi.",
        f"{_HF}.output.dense.": "layers.{i}.mlp.Wo.",
        f"{_HF}.output.LayerNorm.": "layers.{i}.mlp_norm.",
    },
}

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
# What follows the number of a block in old files, of NomicBERT, then GTE -> today's names of its
# equal parts.
_OF_BLOCK: dict[str, tuple[str, ...]] = {
    **{"attn.Wqkv": _QKV, "attn.out_proj": ("self_attn.o_proj",)},
    **{"mlp.fc11": ("mlp.up_proj",), "mlp.fc12": ("mlp.gate_proj",), "mlp.fc2": ("mlp.down_proj",)},
    **{"norm1": ("post_attention_layernorm",), "norm2": ("post_mlp_layernorm",)},
    **{f"attention.{part}_proj": (f"self_attn.{part}_proj",) for part in "qkvo"},
    "attention.qkv_proj": _QKV,
    **{"mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"), "mlp.down_proj": ("mlp.down_proj",)},
    **{"attn_ln": ("post_attention_layernorm",), "mlp_ln": ("post_mlp_layernorm",)},
}
_BLOCK = re.compile(
    rf"encoder\.layers?\.(\d+)\.({'|'.join(map(re.escape, _OF_BLOCK))})\.(?=(weight|bias)$)"
)
_OTHERS = {"emb_ln": "embeddings.LayerNorm", "lm_head.norm": "lm_head.layer_norm"}
_OTHER = re.compile(r"(?<![^.])(emb_ln|lm_head\.norm)(?=\.(weight|bias)$)")


def todays_names(name: str) -> list[str]:
    """The names of a stored array's equal parts, in their order; of most arrays its own name."""
    match = _BLOCK.search(name)
    if match is None:
        return [_OTHER.sub(lambda other: _OTHERS[other[1]], name)]
    before, after = name[: match.start()], name[match.end() :]
    return [f"{before}layers.{match[1]}.{part}.{after}" for part in _OF_BLOCK[match[2]]]
