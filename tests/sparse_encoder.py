"""The small folders in tests/data/sparse_encoder, and the vectors of sentence-transformers."""

import shutil
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "sparse_encoder"
WEIGHTS = DATA / "weights"
CASES = ("splade", "splade_v1", "inference_free")

with np.load(DATA / "vectors.npz") as _stored:
    VECTORS = {name: _stored[name] for name in _stored if name != "texts"}
    TEXTS = _stored["texts"].tolist()


def write(name, folder):
    """The folder of a case, as it would be published."""
    shutil.copytree(DATA / name, folder)
    inner = "document_0_Transformer" if (folder / "router_config.json").exists() else ""
    shutil.copytree(WEIGHTS, folder / inner, dirs_exist_ok=True)
    return folder


def pooled(logits, mask, pooling):
    """The weights [B, V] of logits [B, S, V], in float64 by loops over the rows."""
    weights = []
    for row, real in zip(logits.astype(np.float64), mask, strict=True):
        values = np.log1p(np.maximum(row[real == 1], 0))
        values = np.log1p(values) if pooling.endswith("log1p") else values
        weights.append(values.sum(0) if pooling.startswith("sum") else values.max(0))
    return np.array(weights)


def heaviest(weights, top_k):
    """Weights [N, V] with the K heaviest of each row alone."""
    least = -np.sort(-weights, axis=1)[:, [top_k - 1]]
    return np.where(weights >= least, weights, 0)


def dense(records, width):
    """The weights of records as [N, V]; each term must be there once, the heaviest first."""
    found = np.zeros((len(records), width), np.float32)
    for i, record in enumerate(records):
        ids, values = record.units["term"]["term_ids"], record.features["sparse"][:, 0]
        assert len({*ids.tolist()}) == len(ids)
        assert (np.diff(values) <= 0).all()
        found[i, ids] = values
    return found
