"""The architecture of an encoder from the shapes of its weights, where there is no config file."""

import logging

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.encoder_names import sort_names
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")

# All of Google's published BERTs have heads of this width: 2/128, 4/256, 8/512, 12/768, 16/1024,
# see the table in the README of google-research/bert. So have its ELECTRAs, of these widths alone.
_HEAD_SIZE = 64
_ELECTRA_WIDTHS = (256, 768, 1024)

_MEASURED = {
    "word": "embeddings/word_embeddings",
    "position": "embeddings/position_embeddings",
    "type": "embeddings/token_type_embeddings",
    "query": "encoder/layer_0/attention/self/query/kernel",
    "intermediate": "encoder/layer_0/intermediate/dense/kernel",
}
# By the letters of weight_names' legend; kernels of attention may have an axis for the heads.
_AXES = {"word": (2,), "position": (2,), "type": (2,), "query": (2, 3), "intermediate": (2,)}


def infer_config(weights: WeightFiles, name: str) -> BertConfig:
    """The config that the shapes show of weights of one of Google's kinds of checkpoints.

    For the rest, Google's published BERTs are the model. Raises CheckpointError, which has the
    checkpoint's name, if the shapes are not a BERT encoder's.
    """
    stored = weights.reader.shapes()
    names = sort_names(stored, weights.kind, weights.path).weights
    shapes = {canonical: stored[there] for canonical, there in names.items()}
    electra = weights.is_electra  # its embeddings may be narrower
    measured = {axis: shapes.get(weight, ()) for axis, weight in _MEASURED.items()}
    wrong = [_MEASURED[axis] for axis, shape in measured.items() if len(shape) not in _AXES[axis]]
    if wrong:
        raise CheckpointError(
            f"{name} has no bert_config.json, and its weights are not a BERT encoder's: "
            f"{', '.join(wrong)} missing or of another shape; if it is a BERT, pass config_file"
        )
    if "embeddings_project/kernel" in shapes and not electra:
        raise CheckpointError(
            f"{name} has no albert_config.json, and the weights of an ALBERT do not show the "
            "number of layers; pass config_file"
        )
    hidden = measured["query"][0] if electra else measured["word"][1]
    heads, source = _heads(measured["query"], hidden, name, electra=electra)
    values = {
        "vocab_size": measured["word"][0],
        "hidden_size": hidden,
        # Their number, not the highest: that may be anything.
        "num_hidden_layers": len(weight_names.blocks_of(shapes)),
        "num_attention_heads": heads,
        "intermediate_size": measured["intermediate"][1],
        "max_position_embeddings": measured["position"][0],
        "type_vocab_size": measured["type"][0],
        "hidden_act": "gelu_tanh",
    }
    if electra:  # google-research/electra's gelu is the erf form
        narrow = {"model_type": "electra", "embedding_size": measured["word"][1]}
        values |= narrow | {"hidden_act": "gelu_erf"}
    config = BertConfig.from_dict(values, family="google", source=f"{name} by its shapes")
    logger.info(
        "%s has no bert_config.json: its shapes show %d layers of width %d and %d heads (%s); "
        "the activation is assumed to be Google's gelu (%s)",
        name,
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        source,
        config.hidden_act,
    )
    return config


def _heads(query: tuple[int, ...], hidden: int, name: str, *, electra: bool) -> tuple[int, str]:
    if len(query) == 3 and query[1] * query[2] == hidden:
        return query[1], "stored"
    published = hidden in _ELECTRA_WIDTHS if electra else hidden % _HEAD_SIZE == 0
    if len(query) == 2 and published:
        return hidden // _HEAD_SIZE, f"each of width {_HEAD_SIZE}, as in all that Google published"
    raise CheckpointError(
        f"{name} has no bert_config.json, and its weights do not show the number of heads: "
        f"attention kernels of shape {query}, width {hidden}; pass config_file"
    )
