"""The weights of the masked-LM head: where checkpoints have them.

The head is a dense layer, a layer norm, and a product with the word embeddings plus a bias. Its
canonical names are those of google-research/bert.
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

# How the names of dense layer, layer norm and bias begin, and the name of the matrix that may be
# stored beside the word embeddings.
_PLACES: dict[Kind, tuple[tuple[str, str, str, str], ...]] = {
    "tf1": ((_DENSE, _NORM, _BIAS, ""),),
    # Names of variables in the Model Garden, then their paths in the objects of its pretrainer.
    "tf2": (
        (_DENSE, _NORM, f"{_BIAS}/bias", ""),
        ("masked_lm/dense", "masked_lm/layer_norm", "masked_lm/bias", ""),
    ),
    "safetensors": (
        (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
            "cls.predictions.decoder",
        ),
        # ALBERT, ELECTRA's generator, DistilBERT, RoBERTa
        ("predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder"),
        (
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
            "generator_lm_head",
        ),
        ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
    ),
}
_SCOPE = re.compile(r"^.*/(?=(cls/predictions|masked_lm)/)")  # around the head, in TF2 checkpoints


def head_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every weight of the head."""
    width = config.embedding_width
    return {
        f"{_DENSE}/kernel": (config.hidden_size, width),
        f"{_DENSE}/bias": (width,),
        f"{_NORM}/gamma": (width,),
        f"{_NORM}/beta": (width,),
        _BIAS: (config.vocab_size,),
    }


def stored_head(shapes: Mapping[str, object], kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk of the head's weights; empty without a head.

    With the key `decoder` if there is a matrix beside the word embeddings.
    """
    names = {_SCOPE.sub("", weight_names.plain_name(name, kind)): name for name in shapes}
    hugging = kind == "safetensors"
    kernel, bias, gamma, beta = (
        (".weight", ".bias", ".weight", ".bias")
        if hugging
        else ("/kernel", "/bias", "/gamma", "/beta")
    )
    for dense, norm, output_bias, decoder in _PLACES[kind]:
        if hugging and output_bias not in names:
            output_bias = f"{decoder}.bias"  # tied to the other; files have one of the two or both
        wanted = {
            f"{_DENSE}/kernel": dense + kernel,
            f"{_DENSE}/bias": dense + bias,
            f"{_NORM}/gamma": norm + gamma,
            f"{_NORM}/beta": norm + beta,
            _BIAS: output_bias,
        }
        if set(wanted.values()) <= names.keys():
            found = {canonical: names[name] for canonical, name in wanted.items()}
            matrix = names.get(f"{decoder}.weight")
            return found | ({"decoder": matrix} if matrix else {})
    return {}


def read_head(checkpoint: Checkpoint, reader: Reader, words: np.ndarray) -> dict[str, np.ndarray]:
    """Reads the head's weights.

    Args:
      checkpoint: what `find_checkpoint` found.
      reader: of its weights.
      words: its word embeddings.

    Returns:
      Canonical name -> float32 array.

    Raises:
      CheckpointError: there is no head, a weight has another shape, or the head has a matrix of its
        own instead of the word embeddings.
    """
    name, kind = checkpoint.name, checkpoint.kind
    shapes = reader.shapes()
    stored = stored_head(shapes, kind)
    if not stored:
        raise CheckpointError(
            f"{name} has no masked-LM head, which kind 'masked_lm' and 'score' need; fine-tuned "
            "models and those of sentence-transformers lack it: take the pre-trained model, such "
            "as bert-base-uncased"
        )
    head = {}
    decoder = stored.pop("decoder", None)
    for canonical, shape in head_shapes(checkpoint.config).items():
        with damage_is_an_error(checkpoint.weights_path):
            value = reader.read(stored[canonical]).astype(np.float32, copy=False)
        value = value.T if kind == "safetensors" else value  # kernels are [in, out] here
        if value.shape != shape:
            received = shapes[stored[canonical]]
            raise CheckpointError(f"{name}: {stored[canonical]} is {received}, expected {shape}")
        head[canonical] = np.ascontiguousarray(value)
    if decoder is not None:
        with damage_is_an_error(checkpoint.weights_path):
            matrix = reader.read(decoder)
        if not np.array_equal(matrix.astype(np.float32, copy=False), words):
            raise CheckpointError(
                f"{name}: {decoder} differs from the word embeddings; only a masked-LM head that "
                "shares them can be read"
            )
    return head
