"""The small folders in tests/data/multi_vector, and what sentence-transformers computes of them."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

DATA = Path(__file__).parent / "data" / "multi_vector"
NAMES = ("classic", "plain", "pylate", "stanford")
SIDES = ("query", "document")
KIND = {"kind": "multi_vector"}

with np.load(DATA / "vectors.npz") as _stored:
    _ALL = dict(_stored)
TEXTS = _ALL["texts"].tolist()


def write(name, folder, **changes):
    """The folder of a case, as it would be published.

    `changes` are settings by the path of their file without its suffix, `/` as `__`.
    """
    shutil.copytree(DATA / name, folder)
    weights = load_file(DATA / "weights" / "model.safetensors")
    if name == "stanford":
        weights = {f"bert.{key}": values for key, values in weights.items()}
        weights |= load_file(linear := folder / "linear.safetensors")
        linear.unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file, values in changes.items():
        stem = folder / file.replace("__", "/")
        path = next(stem.parent.glob(f"{stem.name}.*"))
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def vectors(name, side):
    """Those of sentence-transformers: [tokens, D] of each text."""
    ends = np.cumsum(_ALL[f"{name}/{side}_lengths"])
    return np.split(_ALL[f"{name}/{side}"], ends[:-1])


def scores(name):
    """Those of sentence-transformers, [queries, documents]."""
    return _ALL[f"{name}/scores"]
