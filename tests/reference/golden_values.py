"""Makes golden_minilm.npz of `bert_features.check`: what the last layer is compared with.

    python -m tests.reference.golden_values

Ids by the pure-Python tokenizer, values by the float64 NumPy encoder, both of this folder; of the
package only the reading of the weights is used.
"""

from pathlib import Path

import numpy as np

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.text.vocabulary import CLS, SEP, read_vocab
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder

PATH = Path(__file__).resolve().parents[2] / "bert_features" / "check" / "golden_minilm.npz"


def golden_values(texts):
    """Of texts with T tokens altogether: row_splits int64 [texts + 1], token_ids int32 [T] and
    last_layer float32 [T, 384]."""
    checkpoint = find_checkpoint("minilm")
    pieces = read_vocab(checkpoint.vocab_file)
    tokenizer = ReferenceTokenizer.from_tokens(pieces, lower=True)
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    cls, sep = (tokenizer.vocab[piece] for piece in (CLS, SEP))
    rows = [np.array([cls, *tokenizer.ids(text), sep], np.int32) for text in texts]
    layers = [encoder(r[None], np.ones_like(r[None]), np.zeros_like(r[None]))[-1][0] for r in rows]
    return {
        "row_splits": np.cumsum([0, *map(len, rows)]),
        "token_ids": np.concatenate(rows),
        "last_layer": np.concatenate(layers).astype(np.float32),
    }


if __name__ == "__main__":
    from bert_features.check.comparisons import TEXTS

    np.savez_compressed(PATH, **golden_values(TEXTS))
