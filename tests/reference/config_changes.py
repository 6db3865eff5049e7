"""Changes of a config.json, one key each: every key that a class or this package's reader knows.

`scripts/make_reference_settings.py` computes by transformers what they mean.
"""

import json

from tests.reference.settings_cases import DATA

# The keys of config.json of LaBSE, bert-base-multilingual-cased, ms-marco-MiniLM, albert-xxlarge-v1
# (transformers 2 to 4), nomic-embed-text-v1.5, gte-multilingual-base and ModernBERT-base.
PUBLISHED = {
    "bert": """
        _name_or_path architectures directionality finetuning_task gradient_checkpointing
        id2label is_decoder label2id num_labels output_attentions output_hidden_states
        output_past pooler_type pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head position_embedding_type pruned_heads
        sbert_ce_default_activation_function tokenizer_class torch_dtype torchscript
        transformers_version use_bfloat16 use_cache do_sample eos_token_ids length_penalty
        max_length num_beams num_return_sequences repetition_penalty temperature""",
    "albert": """
        classifier_dropout_prob down_scale_factor gap_size inner_group_num layers_to_keep
        ln_type""",
    "nomic_bert": """
        activation_function attn_pdrop auto_map causal dense_seq_output embd_pdrop
        fused_bias_fc fused_dropout_add_ln layer_norm_epsilon max_trained_positions
        mlp_fc1_bias mlp_fc2_bias n_embd n_head n_inner n_layer n_positions
        pad_vocab_size_multiple parallel_block parallel_block_tied_norm prenorm
        qkv_proj_bias reorder_and_upcast_attn resid_pdrop rotary_emb_base
        rotary_emb_fraction rotary_emb_interleaved rotary_emb_scale_base
        rotary_scaling_factor scale_attn_by_inverse_layer_idx scale_attn_weights
        summary_activation summary_first_dropout summary_proj_to_labels summary_type
        summary_use_proj use_cache use_flash_attn use_rms_norm use_xentropy""",
    "gte": """
        auto_map layer_norm_type logn_attention_clip1 logn_attention_scale pack_qkv
        rope_scaling position_embedding_type rope_theta unpad_inputs
        use_memory_efficient_attention""",
    "modernbert": """
        norm_eps layer_norm_eps reference_compile global_rope_theta sparse_prediction""",
}
# Further keys that a class takes, or the package's reader knows; many are of texts to generate.
OTHERS = """
    _attn_implementation _attn_implementation_autoset _commit_hash _num_labels
    allow_global_per_layer_attribute_access always_projects attn_implementation
    bad_words_ids begin_suppress_tokens biases causal_mask cross_attention_hidden_size
    decoder_start_token_id diversity_penalty do_lower_case early_stopping
    encoder_no_repeat_ngram_size expert_choice_router exponential_decay_length_penalty
    feed_forward_type ffn_div forced_bos_token_id forced_eos_token_id gated
    global_attn_every_n_layers has_pooler is_causal language layerdrop local_rope_theta
    mask_token_id min_length model_max_length moe_every_n_layers moe_impl
    moe_normalize_expert_weights moe_resid_pdrop moe_top_k name name_or_path
    net_structure_type no_repeat_ngram_size norm_first first_block_norm final_norm
    num_beam_groups num_experts num_memory_blocks num_shared_experts output_scores
    partial_rotary_factor per_layer_config position_offset prefix quantization_config
    remove_invalid_values
    repad_logits_with_grad return_dict_in_generate rope_divisor router_aux_loss_coef
    sentence_transformers serialize_explicit_per_layer_config sliding_window suppress_tokens
    task_specific_params tf_legacy_loss tie_encoder_decoder tie_weights_ top_k top_p
    typical_p unk_token_id use_return_dict vocab_size_or_config_json_file xla_device
"""
# Model type -> the folder in tests/data/families, and what the names of its classes begin with.
FAMILIES = {
    **{"bert": ("bert", "Bert"), "albert": ("albert", "Albert"), "ernie": ("ernie", "Ernie")},
    **{"electra": ("electra", "Electra"), "distilbert": ("distilbert", "DistilBert")},
    **{"roberta": ("roberta", "Roberta"), "xlm-roberta": ("roberta", "XLMRoberta")},
    **{"camembert": ("roberta", "Camembert"), "modernbert": ("modernbert", "ModernBert")},
    **{"mpnet": ("mpnet", "MPNet"), "gte": ("gte", "Gte")},
    "nomic_bert": ("nomic_bert", "NomicBert"),
}
_ROPE = tuple({"rope_type": kind, "factor": 2.0, "rope_theta": 90.0} for kind in ("yarn", "linear"))
_LAYERS = ["full_attention", "sliding_attention"] * 2
# Keys -> their values, where one more, the opposite or another word would be no case of its own.
_VALUES = {
    "hidden_act hidden_activation activation": ("relu", "mish"),
    "activation_function": ("geglu", "relu"),
    "classifier_activation summary_activation": ("relu",),
    "num_attention_heads n_heads n_head": (4, 3),
    "layer_norm_eps norm_eps layer_norm_epsilon initializer_range": (0.5,),
    "attention_dropout hidden_dropout_prob dropout classifier_dropout": (0.5,),
    "partial_rotary_factor rotary_emb_fraction classifier_dropout_prob": (0.5,),
    "rope_parameters rope_scaling": (*_ROPE, None),
    "rope_theta global_rope_theta local_rope_theta rotary_emb_base": (90.0,),
    "rope_divisor rotary_scaling_factor global_attn_every_n_layers": (2,),
    "local_attention sliding_window": (2, 64),
    "layer_types": (_LAYERS,),
    "position_embedding_type": ("relative_key", "rope", "alibi"),
    "dtype torch_dtype": ("float32",),
    "pad_token_id": (0, None),
    "max_position_embeddings n_positions": (23,),
    "position_offset head_dim": (4,),
    "biases": ("none",),
    "num_hidden_groups": (1,),
    "architectures auto_map": ([],),
    "id2label label2id task_specific_params": ({"0": "a"},),
    "pruned_heads": ({"0": [1]},),
    "per_layer_config": ({"0": {"hidden_act": "relu"}},),
    "quantization_config": ({"bits": 8},),
    "problem_type": ("regression",),
    "transformers_version": ("4.0.0",),
    "classifier_pooling": ("mean",),
}
VALUES = {key: values for keys, values in _VALUES.items() for key in keys.split()}


def keys():
    """All of them, but for model_type: it means another family."""
    stored = json.loads((DATA / "config_keys.json").read_text())
    listed = f"{OTHERS} {' '.join(PUBLISHED.values())}".split()
    return sorted({*listed}.union(*stored.values()) - {"model_type"})


def base(model_type):
    """The contents of the unchanged file."""
    values = json.loads((DATA / "families" / FAMILIES[model_type][0] / "config.json").read_text())
    return values | {"model_type": model_type, "architectures": [f"{FAMILIES[model_type][1]}Model"]}


def changes(model_type):
    """(key, name of the change, contents of the file) for each change."""
    values = base(model_type)
    for key in keys():
        for number, value in enumerate(VALUES.get(key, (_other(values.get(key)),))):
            yield key, f"{model_type}/{key}/{number}", values | {key: value}
        if key in values:
            without = {other: value for other, value in values.items() if other != key}
            yield key, f"{model_type}/{key}/absent", without


def _other(value):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "other"
