"""A TF1 checkpoint of the embedded model, and what google-research/bert's own code gives for it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint


class Official:
    """Texts with their official tokens and layers; tests/data/README.md says how they were made.

    Attributes:
      texts: the texts; `a ||| b` is a pair.
      ids: the ids of each, padded to none.
      layers: block -> [tokens, 384] of each text.
    """

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            values = dict(stored)
        cuts = values["row_splits"][1:-1]
        self.texts = [str(text) for text in values["texts"]]
        self.ids = np.split(values["token_ids"], cuts)
        self.embedding_output = np.split(values["embedding_output"], cuts)
        self.pooled_output = values["pooled_output"]
        self.layers = [np.split(values[f"layer_{i}"], cuts) for i in range(6)]


@pytest.fixture(scope="session")
def minilm_tf1(tmp_path_factory, minilm_dir) -> Path:
    """all-MiniLM-L6-v2 as `convert --to tf1` writes it, with the config of the official values."""
    folder = tmp_path_factory.mktemp("official") / "uncased_minilm"
    convert(find_checkpoint(minilm_dir), folder, to="tf1", do_lower_case=True)
    config = folder / "bert_config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(values | {"hidden_act": "gelu"}), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def official(data_file) -> Official:
    """The official values for nine texts, from the large files where these are, else for five."""
    try:
        return Official(data_file("official_minilm_layers.npz"))
    except pytest.skip.Exception:
        return Official(data_file("official_minilm_layers_5.npz"))
