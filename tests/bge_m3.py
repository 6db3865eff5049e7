"""A small bge-m3: a random XLM-R with its two linear layers, and float64 NumPy on its states.

Dimensions: `S` tokens, `H` width of the encoder.
"""

import json
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.tokenizer import make_tokenizer
from tests import families
from tests.reference import torch_file
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.sentence_transformers_folder import write_settings

V, H, LENGTH = 1002, 16, 64
CLS, SEP, UNKNOWN = 0, 2, 3
BIAS = 0.4
LINEARS = {"sparse_linear.pt": (1, H), "colbert_linear.pt": (H, H)}
TEXTS = [
    "the river and the river, the",
    "In 1948, two  blanks",
    "",
    "☃ is the snowman of the article",
    "No one shall be held in slavery; the freedom of all people is in the law.",
]
OUTPUTS = [
    {"name": "dense", "level": "sequence", "pooling": "auto"},
    {"name": "sparse", "kind": "sparse"},
    {"name": "late", "kind": "multi_vector"},
]


def layer(name):
    """Weight and bias of a linear layer, float16; half of the tokens have a negative weight."""
    rng = np.random.default_rng(21)
    shape = LINEARS[name]
    values = {"weight": rng.normal(size=shape), "bias": rng.normal(size=shape[:1]) + BIAS}
    return {key: value.astype(np.float16) for key, value in values.items()}


def write(folder, family_files, *, linears=tuple(LINEARS), **settings):
    """Writes the folder; `linears` are the layers that it has, `settings` those of the modules."""
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True)
    stored = load_file(families.DATA / "roberta" / "model.safetensors")
    weights = {name: value for name, value in stored.items() if name.startswith("roberta.")}
    for name, rows in (("word", V), ("position", LENGTH + 2)):
        table = rng.normal(size=(rows, H)).astype(np.float32) / 4
        weights[f"roberta.embeddings.{name}_embeddings.weight"] = table
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((families.DATA / "roberta" / "config.json").read_text())
    sizes = {"vocab_size": V, "max_position_embeddings": LENGTH + 2}
    (folder / "config.json").write_text(json.dumps(config | sizes | {"model_type": "xlm-roberta"}))
    shutil.copy(family_files / "xlm_roberta" / "sentencepiece.bpe.model", folder)
    for name in linears:
        (folder / name).write_bytes(torch_file.zip_of(layer(name)))
    return write_settings(folder, modes=("cls",), normalize=True, **settings)


class Reference:
    """What FlagEmbedding's BGEM3 defines, one text at a time."""

    def __init__(self, folder):
        checkpoint = find_checkpoint(folder)
        self.tokenizer = make_tokenizer(checkpoint)
        self.encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))

    def ids(self, text):
        return np.array([CLS, *self.tokenizer.encode_ids([text])[0], SEP])

    def states(self, ids):
        """The last layer, [S, H]."""
        row = np.asarray(ids)[None]
        return self.encoder(row, np.ones_like(row), np.zeros_like(row))[-1][0]

    def linear(self, name, states):
        weight, bias = (layer(name)[key].astype(np.float64) for key in ("weight", "bias"))
        return states @ weight.T + bias

    def dense(self, text):
        first = self.states(self.ids(text))[0]
        return first / np.linalg.norm(first)

    def token_weights(self, states):
        """Weights [S], before the special tokens are left out."""
        return np.maximum(self.linear("sparse_linear.pt", states), 0)[:, 0]

    def sparse(self, text, states=None):
        """Weights [V]; `states` are other ones of the text's tokens, as of windows."""
        weights, ids = np.zeros(V), self.ids(text)
        weights_of_tokens = self.token_weights(self.states(ids) if states is None else states)
        np.maximum.at(weights, ids, weights_of_tokens)
        weights[[CLS, SEP, UNKNOWN]] = 0
        return weights

    def late(self, text):
        """[S - 1, H]: all tokens but the first; the last is </s>."""
        vectors = self.linear("colbert_linear.pt", self.states(self.ids(text))[1:])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
