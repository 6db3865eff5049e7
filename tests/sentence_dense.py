"""The small folders in tests/data/sentence_dense, and the vectors of sentence-transformers."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from tests.reference import numpy_outputs
from tests.reference.numpy_encoder import NumpyEncoder

DATA = Path(__file__).parent / "data" / "sentence_dense"
NAMES = ("labse", "distiluse", "sentence_t5", "two")
AUTO = {"level": "sequence", "pooling": "auto"}
ACTIVATIONS = {
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "Identity": lambda x: x,
}

with np.load(DATA / "vectors.npz") as _stored:
    VECTORS = {name: _stored[name] for name in NAMES}
    TEXTS = _stored["texts"].tolist()


def write(name, folder, **changes):
    """The folder of a case, as it would be published.

    `changes` are settings by the name of their file without `/` and `.json`: `2_Dense_config`.
    """
    shutil.copytree(DATA / "weights", folder, dirs_exist_ok=True)
    shutil.copytree(DATA / name, folder, dirs_exist_ok=True)
    for file, values in changes.items():
        path = next(p for p in folder.rglob("*.json") if file == _key(p.relative_to(folder)))
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def _key(path):
    return str(path.with_suffix("")).replace("/", "_")


def dense(folder, vector, number=2):
    """A vector through the Dense modules of a folder, in float64."""
    while (module := folder / f"{number}_Dense").is_dir():
        config = json.loads((module / "config.json").read_text())
        weights = load_file(module / "model.safetensors")
        product = weights["linear.weight"].astype(np.float64) @ vector
        product = product + weights.get("linear.bias", 0)
        vector = ACTIVATIONS[config["activation_function"].rpartition(".")[2]](product)
        number += 1
    return vector


def reference(folder, ids, pooling, *, normalize=False, dim=None, layer=-1):
    """The vector of a text's ids by NumPy loops, in float64."""
    checkpoint = find_checkpoint(folder)
    ids = np.asarray(ids)[None]
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    state = encoder(ids, np.ones_like(ids), np.zeros_like(ids))[layer][0]
    vector = dense(folder, numpy_outputs.pool_sequence(state, np.zeros(len(state), bool), pooling))
    return (vector / np.linalg.norm(vector) if normalize else vector)[:dim]
