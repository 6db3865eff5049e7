"""A BERT encoder in float64 NumPy, straight from the paper: the oracle for every numeric path.

And its relatives: ALBERT shares blocks between layers and widens its embeddings, as small ELECTRA
does; DistilBERT has no token types; RoBERTa leaves out the first positions.

Weights come under google-research/bert's names without `bert/`, kernels [in, out].
"""

import math

import numpy as np
from scipy.special import erf


def gelu_erf(x):
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {"gelu_erf": gelu_erf, "gelu_tanh": gelu_tanh, "relu": lambda x: np.maximum(x, 0)}


def layer_norm(x, gamma, beta, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class NumpyEncoder:
    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def dense(self, x, scope):
        return x @ self.weights[f"{scope}/kernel"] + self.weights[f"{scope}/bias"]

    def norm(self, x, scope):
        gamma, beta = self.weights[f"{scope}/gamma"], self.weights[f"{scope}/beta"]
        return layer_norm(x, gamma, beta, self.config.layer_norm_eps)

    def __call__(self, word_ids, mask, type_ids):
        """[B, S] each -> [embeddings, block 0, block 1, …], float64 [B, S, H] each."""
        w, config = self.weights, self.config
        x = w["embeddings/word_embeddings"][word_ids]
        first = config.position_offset
        x = x + w["embeddings/position_embeddings"][first : first + word_ids.shape[1]]
        if config.type_vocab_size:
            x = x + w["embeddings/token_type_embeddings"][type_ids]
        x = self.norm(x, "embeddings/LayerNorm")
        if config.embedding_size not in (None, config.hidden_size):
            x = self.dense(x, "embeddings_project")
        states = [x]
        layers = config.num_hidden_layers
        for layer in range(layers):
            block = int(layer / layers * (config.num_hidden_groups or layers))
            states.append(self.block(states[-1], mask, f"encoder/layer_{block}"))
        return states

    def block(self, x, mask, scope):
        x = self.norm(
            x + self.dense(self.attention(x, mask, scope), f"{scope}/attention/output/dense"),
            f"{scope}/attention/output/LayerNorm",
        )
        inner = ACTIVATIONS[self.config.hidden_act](self.dense(x, f"{scope}/intermediate/dense"))
        return self.norm(
            x + self.dense(inner, f"{scope}/output/dense"), f"{scope}/output/LayerNorm"
        )

    def attention(self, x, mask, scope):
        batch, length, hidden = x.shape
        heads = self.config.num_attention_heads
        query, key, value = (
            self.dense(x, f"{scope}/attention/self/{name}")
            .reshape(batch, length, heads, hidden // heads)
            .transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(hidden // heads)
        scores = np.where(mask[:, None, None, :] == 1, scores, -1e30)
        context = softmax(scores) @ value
        return context.transpose(0, 2, 1, 3).reshape(batch, length, hidden)

    def pooled(self, sequence_output):
        return np.tanh(self.dense(sequence_output[:, 0], "pooler/dense"))
