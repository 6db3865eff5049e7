"""The small tokenizers of `tests/data/tokenizers`, and what their families' own code gives."""

import functools
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "tokenizers"
FILES = {
    "albert": "spiece.model",
    "xlm_roberta": "sentencepiece.bpe.model",
    "roberta": "tokenizer.json",
    "modernbert": "tokenizer.json",
}


@functools.cache
def _golden():
    with np.load(DATA / "golden.npz") as arrays:
        return dict(arrays)


def golden(name):
    """An array of golden.npz."""
    return _golden()[name]
