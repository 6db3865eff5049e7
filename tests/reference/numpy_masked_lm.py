"""The masked-LM head in float64 NumPy, from google-research/bert's run_pretraining.py."""

import numpy as np

from tests.reference.numpy_encoder import ACTIVATIONS, layer_norm


def log_probabilities(states, weights, config, activation=None):
    """[…, H] -> [..., V], natural logarithms."""
    weights = {name: value.astype(np.float64) for name, value in weights.items()}
    scope = "cls/predictions/transform"
    x = states @ weights[f"{scope}/dense/kernel"] + weights[f"{scope}/dense/bias"]
    x = ACTIVATIONS[activation or config.hidden_act](x)
    norm = (weights[f"{scope}/LayerNorm/{part}"] for part in ("gamma", "beta"))
    x = layer_norm(x, *norm, config.layer_norm_eps)
    logits = x @ weights["embeddings/word_embeddings"].T + weights["cls/predictions/output_bias"]
    highest = logits.max(-1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))
