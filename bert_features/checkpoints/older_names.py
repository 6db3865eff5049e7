"""The names of weights in NomicBERT's and GTE's own files, whose arrays are several in today's.

Today's are those of the modules of transformers 5, which `relatives` has.
"""

import re

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
# What follows the number of a block, of NomicBERT, then GTE -> today's names of its equal parts.
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
