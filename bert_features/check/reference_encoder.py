"""A BERT encoder in plain NumPy, float64: `doctor --numbers` compares the others with it.

Written from the papers of BERT (Devlin et al. 2018, arXiv:1810.04805) and its relatives, without
Keras, TensorFlow or JAX, and for a few short texts: it computes one text at a time, and GELU by
`math.erf`.

Shape legend: `S` tokens of the text, `H` hidden_size, `A` heads, `D` head size, `L` blocks.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from bert_features.config.bert_config import BertConfig, HiddenAct

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])
_ACTIVATIONS: dict[HiddenAct, Callable[[Array], Array]] = {
    "gelu_erf": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


class ReferenceEncoder:
    """The encoder of one checkpoint; a weight is converted to float64 when it is used."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Array]) -> None:
        self._config = config
        self._weights = weights

    def __call__(self, ids: Array) -> Array:
        """The states of one text, int [S], of type 0 without padding: float64 [1 + L, S, H].

        These are the input of the first block, then each layer's output.
        """
        config = self._config
        sums = self._weights["embeddings/word_embeddings"][ids].astype(np.float64)
        if config.global_rope_theta is None:
            first = config.position_offset
            sums += self._weights["embeddings/position_embeddings"][first : first + len(ids)]
        if config.type_vocab_size:
            sums += self._weights["embeddings/token_type_embeddings"][0]
        states = [self._norm(sums, "embeddings/LayerNorm")]
        if config.projects_embeddings:
            states = [self._dense(states[0], "embeddings_project")]
        for layer in range(config.num_hidden_layers):
            states.append(self._block(states[-1], config.block_of(layer)))
        if config.final_norm:
            states[-1] = self._norm(states[-1], "encoder/LayerNorm")
        return np.stack(states)

    def _block(self, x: Array, number: int) -> Array:
        """[S, H] -> [S, H]."""
        scope, first = f"encoder/layer_{number}", self._config.norm_first
        attention_norm, norm = f"{scope}/attention/output/LayerNorm", f"{scope}/output/LayerNorm"
        has_norm = number > 0 or self._config.first_block_norm
        normal = self._norm(x, attention_norm) if first and has_norm else x
        attended = self._attention(normal, number, f"{scope}/attention/self")
        x = x + self._dense(attended, f"{scope}/attention/output/dense")
        x = self._norm(x, attention_norm) if has_norm and not first else x
        normal = self._norm(x, norm) if first else x
        halves = (
            ("gate", "up") if f"{scope}/intermediate/up/kernel" in self._weights else ("dense",)
        )
        parts = [self._dense(normal, f"{scope}/intermediate/{half}") for half in halves]
        if self._config.joins_matrices:
            parts = np.split(parts[0], 2, axis=-1)
        inner, *gate = parts
        inner = _ACTIVATIONS[self._config.hidden_act](inner)
        x = x + self._dense(inner * gate[0] if gate else inner, f"{scope}/output/dense")
        return x if first else self._norm(x, norm)

    def _attention(self, x: Array, number: int, scope: str) -> Array:
        """[S, H] -> [S, H], head by head."""
        theta, reach = self._config.attention_of(number)
        joined = (
            self._dense(x, f"{scope}/qkv")
            if self._config.joins_matrices
            else np.concatenate(
                [self._dense(x, f"{scope}/{name}") for name in ("query", "key", "value")], axis=-1
            )
        )
        parts = np.split(joined, 3 * self._config.num_attention_heads, axis=-1)  # [S, D] each
        places = np.arange(len(x))
        distance = np.abs(places[:, None] - places)
        rows = np.vectorize(_row_of_distance, otypes=[np.intp])(places - places[:, None])
        heads: list[Array] = []
        for q, k, v in (
            parts[i :: self._config.num_attention_heads] for i in range(len(parts) // 3)
        ):
            if theta is not None:
                q, k = (_turned(x, theta, self._config.rope_divisor) for x in (q, k))
            scores = q @ k.T / math.sqrt(self._config.head_size)
            if self._config.relative_attention_num_buckets is not None:
                scores += self._read("encoder/relative_attention_bias")[rows, len(heads)]
            if reach is not None:
                scores = np.where(distance <= reach, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(weights / weights.sum(axis=-1, keepdims=True) @ v)
        return np.concatenate(heads, axis=-1)

    def _dense(self, x: Array, scope: str) -> Array:
        product: Array = x @ self._read(f"{scope}/kernel")
        name = f"{scope}/bias"
        return product + self._read(name) if name in self._weights else product

    def _norm(self, x: Array, scope: str) -> Array:
        deviation = x - x.mean(axis=-1, keepdims=True)
        variance = (deviation**2).mean(axis=-1, keepdims=True)
        scaled = deviation / np.sqrt(variance + self._config.layer_norm_eps)
        normal: Array = scaled * self._read(f"{scope}/gamma")
        return normal + self._read(f"{scope}/beta") if self._config.has_biases else normal

    def _read(self, name: str) -> Array:
        return self._weights[name].astype(np.float64)


def _row_of_distance(distance: int) -> int:
    """The row of MPNet's table of biases for a key this far behind its query.

    Half of 16 rows for each direction have a distance of their own; the limits of the others grow
    by the square root of 2.
    """
    far = abs(distance)
    row = far if far < 8 else min(7 + (far * far // 64).bit_length(), 15)
    return row + 16 * (distance > 0)


def _turned(x: Array, theta: float, divisor: float) -> Array:
    """Queries or keys, turned by their positions: [S, D] -> [S, D]."""
    first, second = np.split(x, 2, axis=-1)
    half = first.shape[-1]
    angles = np.arange(len(x))[:, None] / divisor * theta ** (-np.arange(half) / half)
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
