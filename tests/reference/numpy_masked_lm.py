"""The masked-LM head in float64 NumPy, from google-research/bert's run_pretraining.py; ModernBERT's
has one bias alone."""

import numpy as np

from tests.reference.numpy_encoder import ACTIVATIONS, layer_norm


def log_probabilities(states, weights, config, activation=None):
    """[…, H] -> [..., V], natural logarithms."""
    weights = {name: value.astype(np.float64) for name, value in weights.items()}
    scope = "cls/predictions/transform"
    x = states @ weights[f"{scope}/dense/kernel"] + weights.get(f"{scope}/dense/bias", 0)
    x = ACTIVATIONS[activation or config.hidden_act](x)
    norm = (weights.get(f"{scope}/LayerNorm/{part}", 0) for part in ("gamma", "beta"))
    x = layer_norm(x, *norm, config.layer_norm_eps)
    logits = x @ weights["embeddings/word_embeddings"].T + weights["cls/predictions/output_bias"]
    highest = logits.max(-1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))
