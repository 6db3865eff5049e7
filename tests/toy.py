"""Toy checkpoints: sizes you can hold in your head, weights from a seed."""

import numpy as np

from bert_features.checkpoints.weights.weight_names import weight_shapes
from bert_features.config.bert_config import BertConfig

TOY = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=24,
)
TOY_LAYERS = ("embeddings", 0, 1, 2)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["is", "this", "jack", "##son", "##ville", "?", "no", "it", "not", ".", "the", "a", "b"]
TOY_VOCAB = [*SPECIAL, *WORDS, *(f"[unused{i}]" for i in range(30 - len(SPECIAL) - len(WORDS)))]


def random_weights(config, *, seed=0, scale=0.2):
    """float32 weights under canonical names; layer norms away from 1 and 0, so each one tells."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        values = rng.normal(size=shape) * scale
        weights[name] = (values + name.endswith("gamma")).astype(np.float32)
    return weights


def random_batch(config, lengths, seq_length, *, seed=1):
    """A batch with rows of these lengths, the second half of each of type 1."""
    rng = np.random.default_rng(seed)
    position = np.arange(seq_length)
    mask = (position < np.array(lengths)[:, None]).astype(np.int32)
    types = (position >= np.array(lengths)[:, None] // 2).astype(np.int32) * mask
    ids = rng.integers(0, config.vocab_size, mask.shape).astype(np.int32) * mask
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
