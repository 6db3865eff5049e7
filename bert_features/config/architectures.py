"""How config files of BERT's relatives differ from BERT's: the names of keys, and the values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bert_features.config.gated import gated_values
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

ModelType = (
    Literal["bert", "albert", "electra", "distilbert", "roberta", "xlm-roberta", "camembert"]
    | Literal["modernbert", "mpnet", "ernie", "nomic_bert", "gte"]
)


@dataclass(frozen=True)
class Architecture:
    """The config files of one `model_type`.

    Attributes:
      model_class: the class that reads its files in transformers.
      keys: key in its files -> key here, where they differ.
      values: what a file means that leaves a key out, by the keys here. A key of `OF_RELATIVES` is
        read only if it is among them.
      fixed: key in its files -> the only value that is supported, or a tuple of some.
      older: key in older files -> key here; it is never written, and today's key wins.
    """

    model_class: str
    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)


def _roberta(model_class: str) -> Architecture:
    # Positions are numbered from the one after the padding's.
    values = {"pad_token_id": 1, "position_offset": 2}
    return Architecture(model_class, values=values)


# Of the encoders with rotary positions and a gate whose norms come last.
_POST_NORM = {"rope_divisor": 1.0, "gated": True, "attention_probs_dropout_prob": 0.0}
_GTE = Architecture(
    "GteModel",
    values={
        **_POST_NORM,
        **{"model_type": "gte", "max_position_embeddings": 8192, "type_vocab_size": 1},
        **{"pad_token_id": 1, "global_rope_theta": 160_000.0, "biases": "ungated"},
    },
    fixed={
        **{"position_embedding_type": "rope", "layer_norm_type": "layer_norm"},
        **{"logn_attention_scale": False},
    },
)

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture("BertModel"),
    "albert": Architecture(
        "AlbertModel",
        values={
            "embedding_size": 128,
            "num_hidden_groups": 1,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "hidden_act": "gelu_tanh",
        },
        fixed={"inner_group_num": 1},
    ),
    "electra": Architecture(
        "ElectraModel",
        values={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "has_pooler": False,
        },
    ),
    "distilbert": Architecture(
        "DistilBertModel",
        keys={
            "dim": "hidden_size",
            "n_layers": "num_hidden_layers",
            "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size",
            "activation": "hidden_act",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        values={"num_hidden_layers": 6, "type_vocab_size": 0, "has_pooler": False},
    ),
    "roberta": _roberta("RobertaModel"),
    "xlm-roberta": _roberta("XLMRobertaModel"),
    "camembert": _roberta("CamembertModel"),
    "mpnet": Architecture(
        "MPNetModel",
        values={
            **{"type_vocab_size": 0, "pad_token_id": 1, "position_offset": 2},
            **{"relative_attention_num_buckets": 32},
        },
        # transformers counts positions from 2 whatever a file says.
        fixed={"pad_token_id": (None, 1)},
    ),
    "ernie": Architecture("ErnieModel", values={"task_type_vocab_size": 3}),
    "nomic_bert": Architecture(
        "NomicBertModel",
        values={
            **_POST_NORM,
            **{"max_position_embeddings": 2048, "hidden_act": "silu", "hidden_dropout_prob": 0.0},
            **{"pad_token_id": 0, "global_rope_theta": 1000.0, "biases": "norms"},
        },
        fixed={
            **{"prenorm": False, "parallel_block": False, "causal": False, "use_rms_norm": False},
            **{"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False},
            **{"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
            **{"rotary_emb_scale_base": None, "scale_attn_weights": True},
            **{"scale_attn_by_inverse_layer_idx": False, "num_experts": (None, 0, 1)},
        },
        older={
            **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers"},
            **{"n_head": "num_attention_heads", "n_inner": "intermediate_size"},
            **{"n_positions": "max_position_embeddings", "layer_norm_epsilon": "layer_norm_eps"},
            **{"rotary_emb_base": "global_rope_theta", "activation_function": "hidden_act"},
            **{"resid_pdrop": "hidden_dropout_prob", "attn_pdrop": "attention_probs_dropout_prob"},
        },
    ),
    "gte": _GTE,
    # The first form of GTE, which its own code reads; that code has other values for absent keys.
    "new": replace(
        _GTE,
        values={
            **_GTE.values,
            **{"max_position_embeddings": 2048, "pad_token_id": 0, "global_rope_theta": 10_000.0},
        },
    ),
    "modernbert": Architecture(
        "ModernBertModel",
        keys={
            "norm_eps": "layer_norm_eps",
            "hidden_activation": "hidden_act",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        values={
            "num_hidden_layers": 22,
            "intermediate_size": 1152,
            "max_position_embeddings": 8192,
            "layer_norm_eps": 1e-5,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "type_vocab_size": 0,
            "pad_token_id": 50283,
            "global_rope_theta": 160_000.0,
            "local_rope_theta": 10_000.0,
            "local_attention": 128,
            "global_attn_every_n_layers": 3,
            "has_pooler": False,
            "biases": "none",
            "norm_first": True,
            "gated": True,
        },
        fixed={"norm_bias": False, "attention_bias": False, "mlp_bias": False},
    ),
}
# The keys of `BertConfig` that only BERT's relatives have; in BERT's files they mean nothing.
OF_RELATIVES = {
    *("embedding_size", "num_hidden_groups", "has_pooler", "pad_token_id", "position_offset"),
    *("relative_attention_num_buckets", "task_type_vocab_size", "rope_divisor"),
    *("global_rope_theta", "local_rope_theta", "local_attention", "global_attn_every_n_layers"),
    *("biases", "norm_first", "gated"),
}


def in_own_keys(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The contents of a config file under the keys of `BertConfig`, with what the file leaves out.

    Args:
      values: the contents of a config file, or what `BertConfig` writes.
      source: where they come from, for error messages.

    Raises:
      CheckpointError: the config is of an unknown architecture or an unsupported form.
    """
    # Google's files have no model_type; of them only ALBERT's have groups.
    by_keys = "albert" if "num_hidden_groups" in values else "bert"
    model_type = values.get("model_type", by_keys)
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise CheckpointError(
            f"{source}: model_type is {shown(model_type)}; only these encoders can be read: "
            f"{', '.join(map(repr, ARCHITECTURES))}"
        )
    for key, only in architecture.fixed.items():
        allowed = only if isinstance(only, tuple) else (only,)
        if key in values and values[key] not in allowed:
            raise CheckpointError(
                f"{source}: {key} is {shown(values[key])}; only {allowed[-1]!r} is supported"
            )
    if model_type == "modernbert":
        try:
            values = {**values, **_rotary_values(values, source)}
        except (AttributeError, TypeError, ZeroDivisionError) as error:
            raise CheckpointError(
                f"{source}: rope_parameters, layer_types or global_attn_every_n_layers is not what "
                "transformers writes"
            ) from error
    foreign = OF_RELATIVES - architecture.values.keys()
    own = {key: values[old] for old, key in architecture.older.items() if old in values}
    own |= {
        architecture.keys.get(key, key): value
        for key, value in values.items()
        if key not in foreign | architecture.fixed.keys()  # these have just been checked
    }
    padding = own.get("pad_token_id")
    if "position_offset" in architecture.values and isinstance(padding, int):
        own.setdefault("position_offset", padding + 1)
    own = {**architecture.values, **own}
    own["model_type"] = architecture.values.get("model_type", model_type)
    if model_type == "ernie" and not values.get("use_task_id"):
        own["task_type_vocab_size"] = 0
    if "rope_divisor" in architecture.values:
        own |= gated_values(values, own, source)
    return own


def _rotary_values(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The bases of the angles, as files of transformers 4 name them; later files have a table.

    Raises CheckpointError for an unsupported table or order of layers.
    """
    own: dict[str, Any] = {}
    for kind, key in (("full", "global_rope_theta"), ("sliding", "local_rope_theta")):
        rotary = (values.get("rope_parameters") or {}).get(f"{kind}_attention")
        if rotary is not None and rotary.get("rope_type", "default") != "default":
            raise CheckpointError(
                f"{source}: rope_type is {shown(rotary['rope_type'])}; only 'default' is supported"
            )
        if rotary is not None and "rope_theta" in rotary:
            own[key] = rotary["rope_theta"]
    if key in values and values[key] is None:  # local layers then have the angles of the others
        own.setdefault(key, values.get("global_rope_theta"))
    every = values.get("global_attn_every_n_layers", 3)
    for layer, kind in enumerate(values.get("layer_types") or ()):
        if kind != ("sliding" if layer % every else "full") + "_attention":
            raise CheckpointError(
                f"{source}: layer_types[{layer}] is {shown(kind)}; only every layer "
                f"{every} from the first may be full_attention, and the others sliding_attention"
            )
    return own
