"""The weights of the masked-LM head: where checkpoints have them.

The head is a dense layer, a layer norm, and a product with the word embeddings plus a bias.
ModernBERT's has only the last of the biases. The canonical names are those of google-research/bert.
"""

import re
from collections.abc import Mapping

import numpy as np

from bert_features.checkpoints import weight_names
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import Reader, damage_is_an_error
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

_DENSE, _NORM = "cls/predictions/transform/dense", "cls/predictions/transform/LayerNorm"
_BIAS = "cls/predictions/output_bias"
_NAMES = (f"{_DENSE}/kernel", f"{_DENSE}/bias", f"{_NORM}/gamma", f"{_NORM}/beta", _BIAS)

# How the names of dense layer, layer norm and bias begin, and the name of the matrix that may be
# stored beside the word embeddings.
_HF, _GEN = "cls.predictions", "generator_predictions"
_PLACES: dict[Kind, tuple[tuple[str, str, str, str], ...]] = {
    "tf1": ((_DENSE, _NORM, _BIAS, ""),),
    # Names of variables in the Model Garden, then their paths in the objects of its pretrainer.
    "tf2": (
        (_DENSE, _NORM, f"{_BIAS}/bias", ""),
        ("masked_lm/dense", "masked_lm/layer_norm", "masked_lm/bias", ""),
    ),
    # BERT and ERNIE, NomicBERT, ALBERT, ELECTRA's generator, DistilBERT; RoBERTa, MPNet and GTE;
    # ModernBERT
    "safetensors": (
        (f"{_HF}.transform.dense", f"{_HF}.transform.LayerNorm", f"{_HF}.bias", f"{_HF}.decoder"),
        (f"{_HF}.transform.dense", f"{_HF}.transform.layer_norm", f"{_HF}.bias", f"{_HF}.decoder"),
        ("predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder"),
        (f"{_GEN}.dense", f"{_GEN}.LayerNorm", "generator_lm_head.bias", "generator_lm_head"),
        ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
        ("head.dense", "head.norm", "decoder.bias", "decoder"),
    ),
}
_SCOPE = re.compile(r"^.*/(?=(cls/predictions|masked_lm)/)")  # around the head, in TF2 checkpoints


def head_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every weight of the head."""
    width = config.embedding_width
    shapes = ((config.hidden_size, width), (width,), (width,), (width,), (config.vocab_size,))
    names = dict(zip(_NAMES, shapes, strict=True))
    return {name: names[name] for name in _names(has_biases=config.has_biases)}


def _names(*, has_biases: bool) -> list[str]:
    return [name for name in _NAMES if has_biases or not name.endswith(("/bias", "/beta"))]


def stored_head(
    shapes: Mapping[str, object], kind: Kind, *, has_biases: bool = True
) -> dict[str, str]:
    """Canonical name -> name on disk of the head's weights; empty without a head.

    With the key `decoder` if there is a matrix beside the word embeddings.
    """
    names = {_SCOPE.sub("", weight_names.plain_name(name, kind)): name for name in shapes}
    hugging = kind == "safetensors"
    parts = "/kernel /bias /gamma /beta" if not hugging else ".weight .bias .weight .bias"
    kernel, bias, gamma, beta = parts.split()
    for dense, norm, output_bias, decoder in _PLACES[kind]:
        if hugging and output_bias not in names:
            output_bias = f"{decoder}.bias"  # tied to the other; files have one of the two or both
        places = (dense + kernel, dense + bias, norm + gamma, norm + beta, output_bias)
        by_name = dict(zip(_NAMES, places, strict=True))
        wanted = {name: by_name[name] for name in _names(has_biases=has_biases)}
        if set(wanted.values()) <= names.keys():
            found = {name: names[place] for name, place in wanted.items()}
            matrix = names.get(f"{decoder}.weight")
            return found | ({"decoder": matrix} if matrix else {})
    return {}


def read_head(checkpoint: Checkpoint, reader: Reader, words: np.ndarray) -> dict[str, np.ndarray]:
    """The head's weights, float32 by canonical name; `words` are the word embeddings.

    Raises:
      CheckpointError: there is no head, a weight has another shape, or the head has a matrix of its
        own instead of the word embeddings.
    """
    name, kind = checkpoint.name, checkpoint.kind
    shapes = reader.shapes()
    stored = stored_head(shapes, kind, has_biases=checkpoint.config.has_biases)
    if not stored:
        raise CheckpointError(
            f"{name} has no masked-LM head, which kind 'masked_lm' and 'score' need; fine-tuned "
            "models and those of sentence-transformers lack it: take the pre-trained model, such "
            "as bert-base-uncased"
        )
    with damage_is_an_error(checkpoint.weights_path):
        read = {key: reader.read(at).astype(np.float32, copy=False) for key, at in stored.items()}
    decoder = read.pop("decoder", words)
    head = {}
    for canonical, shape in head_shapes(checkpoint.config).items():
        value = read[canonical]
        value = value.T if kind == "safetensors" else value  # kernels are [in, out] here
        if value.shape != shape:
            received = shapes[stored[canonical]]
            raise CheckpointError(f"{name}: {stored[canonical]} is {received}, expected {shape}")
        head[canonical] = np.ascontiguousarray(value)
    if decoder is not words and not np.array_equal(decoder, words, equal_nan=True):
        raise CheckpointError(
            f"{name}: {stored['decoder']} differs from the word embeddings; only a masked-LM head "
            "that shares them can be read"
        )
    return head
