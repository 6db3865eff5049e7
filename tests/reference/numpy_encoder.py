"""A BERT encoder in float64 NumPy, straight from the paper: the oracle for every numeric path.

And its relatives: ALBERT shares blocks between layers and widens its embeddings, as small ELECTRA
does; DistilBERT has no token types; RoBERTa leaves out the first positions, as MPNet does, whose
attention has biases by distance; ModernBERT turns
queries and keys by their positions, most of its layers see a window, its feed-forward part has a
gate, and its norms come first; NomicBERT and GTE have such positions and gates in BERT's block.

Weights come under google-research/bert's names without `bert/`, kernels [in, out].
"""

import math

import numpy as np
from scipy.special import erf

WORDS = "embeddings/word_embeddings"


def gelu_erf(x):
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {"gelu_erf": gelu_erf, "gelu_tanh": gelu_tanh, "relu": lambda x: np.maximum(x, 0)}
ACTIVATIONS["silu"] = lambda x: x / (1.0 + np.exp(-x))


def layer_norm(x, gamma, beta, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rotated(x, theta, divisor=1.0):
    """[B, A, S, D]: the pair (x_j, x_{j + D/2}) as a complex number, times e^(i p angle_j)."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[2])[:, None] / divisor / theta ** (np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


class NumpyEncoder:
    bias = None  # added to the scores of each key, [B, S]; by default the mask decides

    def __init__(self, config, weights):
        self.config = config
        # The words of a real vocabulary are many, so their rows are converted when they are used.
        self.weights = {
            name: value if name == WORDS else value.astype(np.float64)
            for name, value in weights.items()
        }

    def dense(self, x, scope):
        return x @ self.weights[f"{scope}/kernel"] + self.weights.get(f"{scope}/bias", 0.0)

    def norm(self, x, scope):
        gamma, beta = self.weights[f"{scope}/gamma"], self.weights.get(f"{scope}/beta", 0.0)
        return layer_norm(x, gamma, beta, self.config.layer_norm_eps)

    def __call__(self, word_ids, mask, type_ids):
        """[B, S] each -> [embeddings, block 0, block 1, …], float64 [B, S, H] each.

        `attention_of` then has the weights of each layer, [B, A, S, S].
        """
        self.attention_of = []
        w, config = self.weights, self.config
        x = w[WORDS][word_ids].astype(np.float64)
        if config.model_type not in ("modernbert", "nomic_bert", "gte"):
            first = config.position_offset
            x = x + w["embeddings/position_embeddings"][first : first + word_ids.shape[1]]
        if config.type_vocab_size:
            x = x + w["embeddings/token_type_embeddings"][type_ids]
        x = self.norm(x, "embeddings/LayerNorm")
        if config.embedding_size not in (None, config.hidden_size):
            x = self.dense(x, "embeddings_project")
        states = [x]
        layers = config.num_hidden_layers
        if config.model_type == "modernbert":
            for layer in range(layers):
                states.append(self.modern_block(states[-1], mask, layer))
            return [*states[:-1], self.norm(states[-1], "encoder/LayerNorm")]
        for layer in range(layers):
            block = int(layer / layers * (config.num_hidden_groups or layers))
            states.append(self.block(states[-1], mask, f"encoder/layer_{block}"))
        return states

    def block(self, x, mask, scope):
        x = self.norm(
            x + self.dense(self.attention(x, mask, scope), f"{scope}/attention/output/dense"),
            f"{scope}/attention/output/LayerNorm",
        )
        activation = ACTIVATIONS[self.config.hidden_act]
        if self.config.model_type in ("nomic_bert", "gte"):
            inner = activation(self.dense(x, f"{scope}/intermediate/gate"))
            inner = inner * self.dense(x, f"{scope}/intermediate/up")
        else:
            inner = activation(self.dense(x, f"{scope}/intermediate/dense"))
        return self.norm(
            x + self.dense(inner, f"{scope}/output/dense"), f"{scope}/output/LayerNorm"
        )

    def modern_block(self, x, mask, layer):
        scope, config = f"encoder/layer_{layer}", self.config
        normed = x if layer == 0 else self.norm(x, f"{scope}/attention/output/LayerNorm")
        batch, length, hidden = x.shape
        size = hidden // config.num_attention_heads
        qkv = self.dense(normed, f"{scope}/attention/self/qkv")
        query, key, value = np.moveaxis(qkv.reshape(batch, length, 3, -1, size), (2, 3), (0, 2))
        seen = mask[:, None, None, :] == 1
        theta = config.global_rope_theta
        kinds = config.layer_types
        if layer % config.global_attn_every_n_layers if kinds is None else kinds[layer][0] == "s":
            theta = config.local_rope_theta
            distance = np.abs(np.arange(length)[:, None] - np.arange(length))
            seen = seen & (distance <= config.local_attention // 2)
        query, key = rotated(query, theta), rotated(key, theta)
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(size)
        self.attention_of.append(softmax(np.where(seen, scores, -1e30)) * seen.any(-1)[..., None])
        context = self.attention_of[-1] @ value
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + self.dense(context, f"{scope}/attention/output/dense")
        inner = self.dense(self.norm(x, f"{scope}/output/LayerNorm"), f"{scope}/intermediate/dense")
        value, gate = np.split(inner, 2, axis=-1)
        activated = ACTIVATIONS[config.hidden_act](value) * gate
        return x + self.dense(activated, f"{scope}/output/dense")

    def attention(self, x, mask, scope):
        batch, length, hidden = x.shape
        config = self.config
        heads = config.num_attention_heads
        query, key, value = (
            self.dense(x, f"{scope}/attention/self/{name}")
            .reshape(batch, length, heads, hidden // heads)
            .transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        if config.model_type in ("nomic_bert", "gte"):
            query, key = (
                rotated(x, config.global_rope_theta, config.rope_divisor) for x in (query, key)
            )
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(hidden // heads)
        if config.model_type == "mpnet":
            scores = scores + self.nearness(length)
        if self.bias is not None:
            scores = scores + self.bias[:, None, None, :]
        else:
            scores = np.where(mask[:, None, None, :] == 1, scores, -1e30)
        self.attention_of.append(softmax(scores))
        context = self.attention_of[-1] @ value
        return context.transpose(0, 2, 1, 3).reshape(batch, length, hidden)

    def nearness(self, length):
        """[A, S, S]: T5's logarithmic buckets, in whole numbers."""
        distance = np.arange(length) - np.arange(length)[:, None]
        far = np.maximum(np.abs(distance), 1)
        log = 8 + np.floor(np.log2(far**2 // 64 + (far < 8)) + 1e-9).astype(int)
        bucket = np.where(far < 8, np.abs(distance), np.minimum(log, 15))
        table = self.weights["encoder/relative_attention_bias"]
        return table[bucket + 16 * (distance > 0)].transpose(2, 0, 1)

    def pooled(self, sequence_output):
        return np.tanh(self.dense(sequence_output[:, 0], "pooler/dense"))
