"""The names in NomicBERT's and GTE's own files, which their makers' code reads.

transformers 5 writes others, which `relatives` has; what these files store as one array is several
there.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bert_features.checkpoints.weight_readers import Reader

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
# What follows the number of a block -> today's names of its equal parts.
_OF_BLOCK: dict[str, tuple[str, ...]] = {
    # NomicBERT
    "attn.Wqkv": _QKV,
    "attn.out_proj": ("self_attn.o_proj",),
    "mlp.fc11": ("mlp.up_proj",),
    "mlp.fc12": ("mlp.gate_proj",),
    "mlp.fc2": ("mlp.down_proj",),
    "norm1": ("post_attention_layernorm",),
    "norm2": ("post_mlp_layernorm",),
    # GTE
    "attention.qkv_proj": _QKV,
    **{f"attention.{part}_proj": (f"self_attn.{part}_proj",) for part in "qkvo"},
    "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
    "attn_ln": ("post_attention_layernorm",),
    "mlp_ln": ("post_mlp_layernorm",),
}
_BLOCK = re.compile(
    rf"encoder\.layers?\.(\d+)\.({'|'.join(map(re.escape, _OF_BLOCK))})\.(?=(weight|bias)$)"
)
_OTHERS = {"emb_ln.": "embeddings.LayerNorm.", "lm_head.norm.": "lm_head.layer_norm."}
_OTHER = re.compile(rf"(?<![^.])({'|'.join(map(re.escape, _OTHERS))})(?=(weight|bias)$)")


class TodaysNames:
    """A reader of weights under the names of today, whatever the file has."""

    def __init__(self, reader: "Reader") -> None:
        self._reader = reader
        stored = reader.shapes()
        self._shapes: dict[str, tuple[int, ...]] = {}
        # Today's name -> the stored name, which of its parts, and how many it has.
        self._places: dict[str, tuple[str, int, int]] = {}
        for name, shape in stored.items():
            parts = _todays_names(name)
            if shape and shape[0] % len(parts) == 0 and not any(part in stored for part in parts):
                shape = (shape[0] // len(parts), *shape[1:])
            else:  # an error will list it
                parts = [name]
            for number, part in enumerate(parts):
                self._shapes[part] = shape
                self._places[part] = name, number, len(parts)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name -> shape of every tensor."""
        return self._shapes

    def read(self, name: str) -> np.ndarray:
        """One tensor, as it is stored."""
        stored, number, count = self._places[name]
        value = self._reader.read(stored)
        return value if count == 1 else np.split(value, count)[number]


def _todays_names(name: str) -> list[str]:
    """The names of a stored array's equal parts, in their order; of most arrays its own name."""
    match = _BLOCK.search(name)
    if match is None:
        return [_OTHER.sub(lambda other: _OTHERS[other[1]], name)]
    before, after = name[: match.start()], name[match.end() :]
    return [f"{before}layers.{match[1]}.{part}.{after}" for part in _OF_BLOCK[match[2]]]
