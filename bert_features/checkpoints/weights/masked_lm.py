"""The weights of the masked-LM head: where checkpoints have them.

The head is a dense layer, a layer norm, and a product with the word embeddings plus a bias.
ModernBERT's usually has only the last of the biases. The canonical names are those of
google-research/bert.
"""

import re
from collections.abc import Mapping

import numpy as np

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.weight_names import Kind
from bert_features.checkpoints.weights.weight_readers import WeightFiles, read_floats
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
    absent = set() if config.has_biases else {f"{_NORM}/beta"}
    if not (config.has_biases or config.classifier_bias):
        absent.add(f"{_DENSE}/bias")
    return {name: shape for name, shape in names.items() if name not in absent}


def stored_head(
    shapes: Mapping[str, object], kind: Kind, config: BertConfig, *, prefix: str = ""
) -> dict[str, str]:
    """Canonical name -> name on disk of the head's weights; empty without a head.

    With the key `decoder` if there is a matrix beside the word embeddings. The head is beside the
    encoder, whose names begin with `prefix` (`module.` for `module.bert.`), or inside.
    """
    hugging = kind == "safetensors"
    parts = "/kernel /bias /gamma /beta" if not hugging else ".weight .bias .weight .bias"
    kernel, bias, gamma, beta = parts.split()
    parent = prefix[: max(prefix.rfind(separator, 0, -1) for separator in "./") + 1]
    for scope in dict.fromkeys((parent, prefix)):
        names = {_plain(n.removeprefix(scope)): n for n in shapes if n.startswith(scope)}
        for dense, norm, output_bias, decoder in _PLACES[kind]:
            if hugging and output_bias not in names:
                output_bias = f"{decoder}.bias"  # tied to the other; files have one or both
            places = (dense + kernel, dense + bias, norm + gamma, norm + beta, output_bias)
            by_name = dict(zip(_NAMES, places, strict=True))
            expected = {name: by_name[name] for name in head_shapes(config)}
            if not config.decoder_bias:
                del expected[_BIAS]
            if set(expected.values()) <= names.keys():
                head = {name: names[place] for name, place in expected.items()}
                matrix = names.get(f"{decoder}.weight")
                return head | ({"decoder": matrix} if matrix else {})
    return {}


def _plain(name: str) -> str:
    return _SCOPE.sub("", weight_names.in_todays_norms(name))


def check_head(name: str, stored: Mapping[str, str]) -> None:
    """Refuses a checkpoint without a head, see `stored_head`; raises CheckpointError."""
    if not stored:
        raise CheckpointError(
            f"{name} has no masked-LM head, which kinds masked_lm, score and sparse need; "
            "fine-tuned models and those of sentence-transformers lack it: take the pre-trained "
            "model, such as bert-base-uncased, or for sparse one that SparseEncoder saved or that "
            "has sparse_linear.pt, as bge-m3"
        )


def read_head(
    name: str,
    files: WeightFiles,
    config: BertConfig,
    stored: Mapping[str, str],
    words: np.ndarray,
) -> dict[str, np.ndarray]:
    """The head's weights, float32 by canonical name; `words` are the word embeddings.

    `name` is the checkpoint's, for messages; `stored` is what `stored_head` found.

    Raises:
      CheckpointError: there is no head, a weight has another shape, or the head has a matrix of its
        own instead of the word embeddings.
    """
    check_head(name, stored)
    reader = files.reader
    read = {key: read_floats(reader, place, files.path) for key, place in stored.items()}
    if not config.decoder_bias:
        read[_BIAS] = np.zeros(config.vocab_size, np.float32)
    decoder = read.pop("decoder", words)
    head = {}
    for canonical, shape in head_shapes(config).items():
        value = read[canonical]
        value = value.T if files.kind == "safetensors" else value  # kernels are [in, out] here
        if value.shape != shape:
            received = reader.shapes()[stored[canonical]]
            raise CheckpointError(f"{name}: {stored[canonical]} is {received}, expected {shape}")
        head[canonical] = np.ascontiguousarray(value)
    if decoder is not words and not np.array_equal(decoder, words, equal_nan=True):
        raise CheckpointError(
            f"{name}: {stored['decoder']} differs from the word embeddings; only a masked-LM head "
            "that shares them can be read"
        )
    return head
