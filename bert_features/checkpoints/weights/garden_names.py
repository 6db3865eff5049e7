"""Names in TF2 checkpoints of the Model Garden: old spellings of variables, paths of objects."""

import re

# Names of the first TF2 BERTs (TF-Hub /1 and /2, behind `bert_model/`) -> today's.
_OLD = {
    r"\bencoder/layer_(?=\d)": "transformer/layer_",
    r"\bembedding_postprocessor/type_embeddings$": "type_embeddings/embeddings",
    r"\bembedding_postprocessor/position_embeddings$": "position_embedding/embeddings",
    r"\bembedding_postprocessor/layer_norm/": "embeddings/layer_norm/",
    r"(self_attention/)?self_attention_output/": "self_attention/attention_output/",
    # The only block of an ALBERT.
    r"\btransformer/(?=self_attention|intermediate/|output)": "transformer/layer_0/",
}

# Paths in the Model Garden's encoder objects, for variables whose name does not help.
_PATHS = {
    r"^layer_with_weights-0/embeddings$": "word_embeddings/embeddings",
    r"^layer_with_weights-1/embeddings$": "position_embedding/embeddings",
    r"^layer_with_weights-2/embeddings$": "type_embeddings/embeddings",
    r"^layer_with_weights-3/(?=gamma$|beta$)": "embeddings/layer_norm/",
    r"^layer_with_weights-\d+/(?=kernel$|bias$)": "pooler_transform/",
    r"^_embedding_layer/": "word_embeddings/",
    r"^_position_embedding_layer/(_position_)?": "position_embedding/",
    r"^_type_embedding_layer/": "type_embeddings/",
    r"^_embedding_norm_layer/": "embeddings/layer_norm/",
    r"^_pooler_layer/": "pooler_transform/",
    r"^_transformer_layers/(?=\d)": "transformer/layer_",
    r"(?<=/)_attention_layer/_(query|key|value)_dense/": r"self_attention/\1/",
    r"(?<=/)_attention_layer/_output_dense/": "self_attention/attention_output/",
    r"(?<=/)_attention_layer_norm/": "self_attention_layer_norm/",
    r"(?<=/)_intermediate_dense/": "intermediate/",
    r"(?<=/)_output_dense/": "output/",
    r"(?<=/)_output_layer_norm/": "output_layer_norm/",
}


def in_todays_spelling(name: str) -> str:
    """A variable's name as today's encoders spell it."""
    for pattern, today in _OLD.items():
        name = re.sub(pattern, today, name)
    return name


def name_at_path(path: str) -> str:
    """The name of the variable at a path in the saved objects of an encoder."""
    path = re.sub(r"^(encoder|model|encoder_network)/", "", path)
    # The blocks come after the four layers of the embeddings.
    path = re.sub(
        r"^layer_with_weights-(\d+)/(?=_)",
        lambda match: f"_transformer_layers/{int(match[1]) - 4}/",
        path,
    )
    for pattern, name in _PATHS.items():
        path = re.sub(pattern, name, path, count=1)
    return path
