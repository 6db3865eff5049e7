"""How config files of BERT's relatives differ from BERT's: the names of keys, and the values."""

import re
from collections.abc import Callable, Iterable, Mapping
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
      fixed: key in its files -> the only value that is supported, or a tuple of some, apart from
        null.
      older: key in older files -> key here; it is never written, and today's key wins.
      aliases: keys here, separated by blanks, that its class reads too and prefers to its own.
      unread: keys here that its class does not read.
      switches: key in its files -> key here that is 0 unless the first is true.
      neutral: further keys in its files without effect on the numbers, or read by code below.
      prefix: what the names of its weights begin with, where that is not the model type.
    """

    model_class: str
    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    aliases: str = ""
    unread: str = ""
    switches: Mapping[str, str] = field(default_factory=dict)
    neutral: str = ""
    prefix: str = ""

    def foreign(self) -> set[str]:
        """The keys of `BertConfig` that mean nothing in its files."""
        return (OF_RELATIVES - self.values.keys()) | OF_NO_FILE | set(self.unread.split())

    def names_in(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Key of `BertConfig` -> its name in a file with these contents, where that is another."""
        older = {key: old for old, key in self.older.items() if old in values and key not in values}
        aliased = values.keys() & {*self.aliases.split()}
        renamed = {key: name for name, key in self.keys.items() if key not in aliased}
        return {"rope_divisor": "factor"} | older | renamed

    def fixed_keys(self) -> dict[str, Any]:
        """Key -> the only supported value, also of `FIXED` and of what a family has by its code."""
        neutral = self.neutral.split()
        by_code = {key: only for key, only in self.values.items() if key in BY_CODE}
        of_all = {key: only for key, only in FIXED.items() if key not in neutral}
        return of_all | by_code | dict(self.fixed)


# Keys of every family without effect on the numbers of an encoder, by the reason.
_REASONS = {
    "training": "classifier_dropout classifier_dropout_prob gradient_checkpointing layerdrop",
    "heads of other tasks; the masked-LM head is compared with the word embeddings": """
        finetuning_task id2label label2id num_labels _num_labels problem_type tie_word_embeddings
        tie_weights_ task_specific_params sbert_ce_default_activation_function sentence_transformers
        pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
        pooler_type""",
    "decoders, which FIXED refuses, and texts that they generate": """
        is_encoder_decoder tie_encoder_decoder cross_attention_hidden_size use_cache output_past
        decoder_start_token_id bad_words_ids begin_suppress_tokens diversity_penalty do_sample
        early_stopping encoder_no_repeat_ngram_size eos_token_ids exponential_decay_length_penalty
        forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
        no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores prefix
        remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature
        top_k top_p typical_p""",
    "what transformers returns, and how and in which precision it computes": """
        attn_implementation _attn_implementation _attn_implementation_autoset torchscript
        chunk_size_feed_forward output_attentions output_hidden_states return_dict use_return_dict
        dtype torch_dtype use_bfloat16 tf_legacy_loss xla_device""",
    "where the file comes from": """
        _commit_hash _name_or_path architectures language model_type name transformers_version
        vocab_size_or_config_json_file""",
    "the tokenizer, whose own files say it": """
        bos_token_id cls_token_id do_lower_case eos_token_id mask_token_id model_max_length
        pad_token_id sep_token_id tokenizer_class unk_token_id""",
}
NEUTRAL = set(" ".join(_REASONS.values()).split())
# Keys of every family -> the only value that is supported, apart from null. (jinaai's BERTs have
# alibi, rotary and geglu.)
FIXED: Mapping[str, Any] = {
    **{"is_decoder": False, "add_cross_attention": False, "is_causal": False, "causal_mask": False},
    **{"position_embedding_type": "absolute", "feed_forward_type": "original"},
    **{"directionality": "bidi", "pruned_heads": {}, "per_layer_config": {}},
    "quantization_config": None,
}


# Positions are numbered from the one after the padding's.
_ROBERTA = Architecture(
    "RobertaModel", values={"pad_token_id": 1, "position_offset": 2}, prefix="roberta"
)
# Encoders with rotary positions and a gate whose norms come last.
_POST_NORM = {"rope_divisor": 1.0, "gated": True, "attention_probs_dropout_prob": 0.0}
# Read by `gated_values`; and the place of the families' own code, which this package restates.
_ROTARY = "head_dim rope_parameters rope_scaling rope_theta auto_map"
_GTE = Architecture(
    "GteModel",
    values={
        **_POST_NORM,
        **{"model_type": "gte", "max_position_embeddings": 8192, "type_vocab_size": 1},
        **{"pad_token_id": 1, "global_rope_theta": 160_000.0, "biases": "ungated"},
    },
    unread="global_rope_theta",
    fixed={
        **{"position_embedding_type": "rope", "layer_norm_type": "layer_norm"},
        **{"logn_attention_scale": False, "partial_rotary_factor": 1.0},
    },
    neutral=f"{_ROTARY} pack_qkv unpad_inputs use_memory_efficient_attention logn_attention_clip1",
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
            "always_projects": True,
        },
        fixed={"inner_group_num": 1, "ln_type": "postln"},
        neutral="down_scale_factor gap_size layers_to_keep net_structure_type num_memory_blocks",
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
        neutral="summary_activation summary_last_dropout summary_type summary_use_proj",
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
        aliases="hidden_size num_hidden_layers num_attention_heads",
        # layer_norm_eps is 1e-12 in its code.
        unread="layer_norm_eps type_vocab_size intermediate_size hidden_act hidden_dropout_prob "
        "attention_probs_dropout_prob",
        # The table of sinusoidal positions is stored as any other.
        neutral="qa_dropout seq_classif_dropout sinusoidal_pos_embds",
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": replace(_ROBERTA, model_class="XLMRobertaModel"),
    "camembert": replace(_ROBERTA, model_class="CamembertModel"),
    "mpnet": Architecture(
        "MPNetModel",
        values={
            **{"type_vocab_size": 0, "pad_token_id": 1, "position_offset": 2},
            **{"relative_attention_num_buckets": 32},
        },
        unread="type_vocab_size",
        # transformers counts positions from 2 whatever a file says.
        fixed={"pad_token_id": (None, 1)},
    ),
    "ernie": Architecture(
        "ErnieModel",
        values={"task_type_vocab_size": 3},
        switches={"use_task_id": "task_type_vocab_size"},
    ),
    "nomic_bert": Architecture(
        "NomicBertModel",
        values={
            **_POST_NORM,
            **{"max_position_embeddings": 2048, "hidden_act": "silu", "hidden_dropout_prob": 0.0},
            **{"pad_token_id": 0, "global_rope_theta": 1000.0, "biases": "norms"},
        },
        unread="global_rope_theta",
        neutral=f"{_ROTARY} rotary_scaling_factor max_trained_positions dense_seq_output "
        "embd_pdrop fused_bias_fc fused_dropout_add_ln pad_vocab_size_multiple use_flash_attn "
        "parallel_block_tied_norm reorder_and_upcast_attn use_xentropy summary_activation "
        "summary_type summary_first_dropout summary_proj_to_labels summary_use_proj ffn_div "
        "expert_choice_router moe_every_n_layers moe_impl moe_normalize_expert_weights "
        "moe_resid_pdrop moe_top_k num_shared_experts router_aux_loss_coef",
        fixed={
            **{"prenorm": False, "parallel_block": False, "causal": False, "use_rms_norm": False},
            **{"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False},
            **{"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
            **{"rotary_emb_scale_base": None, "scale_attn_weights": True},
            **{"partial_rotary_factor": 1.0},
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
        model_class="NewModel",
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
            "layer_types": None,
            "has_pooler": False,
            "biases": "none",
            "norm_first": True,
            "first_block_norm": False,  # the embeddings are normalised
            "final_norm": True,
            "gated": True,
            "classifier_bias": False,
            "classifier_activation": "gelu",
            "decoder_bias": True,
        },
        fixed={"norm_bias": False, "attention_bias": False, "mlp_bias": False},
        unread="layer_norm_eps type_vocab_size hidden_act hidden_dropout_prob "
        "attention_probs_dropout_prob",
        # Its positions are rotary, and published files have both norm_eps and layer_norm_eps.
        neutral="position_embedding_type layer_norm_eps embedding_dropout mlp_dropout "
        "classifier_pooling initializer_cutoff_factor deterministic_flash_attn reference_compile "
        "repad_logits_with_grad sparse_prediction sparse_pred_ignore_index rope_parameters "
        "rope_scaling sliding_window",
    ),
}
# The keys of `BertConfig` that a family has by its code; a file with another value is refused.
BY_CODE = {"has_pooler", "biases", "norm_first", "first_block_norm", "final_norm", "gated"}
# The keys that no file has: those, and derived values.
OF_NO_FILE = BY_CODE | {"position_offset", "rope_divisor", "always_projects"}
# The keys of `BertConfig` that only BERT's relatives have; in BERT's files they mean nothing.
OF_RELATIVES = OF_NO_FILE | {
    *("embedding_size", "num_hidden_groups", "pad_token_id", "relative_attention_num_buckets"),
    *("task_type_vocab_size", "global_rope_theta", "local_rope_theta", "local_attention"),
    *("global_attn_every_n_layers", "layer_types"),
    *("classifier_bias", "classifier_activation", "decoder_bias"),
}


def in_own_keys(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The contents of a config file under the keys of `BertConfig`, with what the file leaves out.

    Raises CheckpointError, which names `source`, if the config is of an unknown architecture or an
    unsupported form.
    """
    model_type, architecture = architecture_of(values, source)
    for key, only in architecture.fixed_keys().items():
        allowed = only if isinstance(only, tuple) else (only,)
        if values.get(key) not in (None, *allowed):
            raise CheckpointError(
                f"{source}: {key} is {shown(values[key])}; only {allowed[-1]!r} is supported"
            )
    names = architecture.keys
    checked = architecture.foreign() | names.keys() | architecture.fixed.keys()
    own = {key: values[old] for old, key in architecture.older.items() if old in values}
    own |= {key: value for key, value in values.items() if key not in checked}
    own |= {names[key]: value for key, value in values.items() if key in names}
    own |= {key: values[key] for key in architecture.aliases.split() if key in values}
    padding = own.get("pad_token_id")
    if "position_offset" in architecture.values and isinstance(padding, int):
        own.setdefault("position_offset", padding + 1)
    own = {**architecture.values, **own}
    own["model_type"] = architecture.values.get("model_type", model_type)
    own |= {key: 0 for switch, key in architecture.switches.items() if not values.get(switch)}
    return own | gated_values(values, own, source) if "gated" in architecture.values else own


def model_type_of(
    values: Mapping[str, Any], source: str, weights: Callable[[], Iterable[str]] | None = None
) -> Any:
    """The model type of a config file: by its key, else its classes, else the names of `weights`.

    Without these three the file is Google's. Raises CheckpointError if they show none or several.
    """
    classes, stated = values.get("architectures"), values.get("model_type")
    has_groups = "num_hidden_groups" in values  # only ALBERT's have
    if stated is not None or (not classes and (has_groups or weights is None)):
        return ("albert" if has_groups else "bert") if stated is None else stated
    parts = set() if classes or weights is None else {*".".join(weights()).split(".")}
    named = " ".join(map(str, classes if isinstance(classes, list) else [classes]))
    types = [
        name
        for name, each in ARCHITECTURES.items()
        if (each.prefix or name) in parts
        or re.search(rf"\b{each.model_class.removesuffix('Model')}(Model|LMHead|For[A-Z])", named)
    ]
    if len(types) == 1:
        return types[0]
    evidence = f"architectures {shown(classes)}" if classes else "the names of the weights"
    raise CheckpointError(
        f"{source} has no model_type, and {evidence} do not decide it; put it into the file: "
        f"{' or '.join(types or ARCHITECTURES)}"
    )


def architecture_of(values: Mapping[str, Any], source: str) -> tuple[str, Architecture]:
    """The model type of a config file, and what is known of it; raises CheckpointError."""
    model_type = model_type_of(values, source)
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise CheckpointError(
            f"{source}: model_type is {shown(model_type)}; only these encoders can be read: "
            f"{', '.join(map(repr, ARCHITECTURES))}"
        )
    return model_type, architecture
