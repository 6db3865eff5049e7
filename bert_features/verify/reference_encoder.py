"""A BERT encoder in plain NumPy, float64: `verify` compares the others with it.

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
    "tanh": np.tanh,
    "linear": lambda x: x,
}


class ReferenceEncoder:
    """The encoder of one checkpoint.

    Args:
      config: the architecture.
      weights: by canonical name, as `read_weights` returns them; each is converted to float64 when
        it is used.
    """

    def __init__(self, config: BertConfig, weights: Mapping[str, Array]) -> None:
        self._config = config
        self._weights = weights

    def __call__(self, ids: Array) -> Array:
        """Computes the states of one text without padding, every token of type 0.

        Args:
          ids: int [S], [CLS] and [SEP] included.

        Returns:
          float64 [1 + L, S, H]: the input of the first block, then each layer's output.
        """
        first = self._config.position_offset
        sums = self._weights["embeddings/word_embeddings"][ids].astype(np.float64)
        sums += self._weights["embeddings/position_embeddings"][first : first + len(ids)]
        if self._config.type_vocab_size:
            sums += self._weights["embeddings/token_type_embeddings"][0]
        states = [self._norm(sums, "embeddings/LayerNorm")]
        if self._config.embedding_width != self._config.hidden_size:
            states = [self._dense(states[0], "embeddings_project")]
        for layer in range(self._config.num_hidden_layers):
            scope = f"encoder/layer_{self._config.block_of(layer)}"
            states.append(self._block(states[-1], scope))
        return np.stack(states)

    def _block(self, x: Array, scope: str) -> Array:
        """[S, H] -> [S, H]."""
        attended = self._dense(self._attention(x, scope), f"{scope}/attention/output/dense")
        x = self._norm(x + attended, f"{scope}/attention/output/LayerNorm")
        inner = self._dense(x, f"{scope}/intermediate/dense")
        outer = self._dense(_ACTIVATIONS[self._config.hidden_act](inner), f"{scope}/output/dense")
        return self._norm(x + outer, f"{scope}/output/LayerNorm")

    def _attention(self, x: Array, scope: str) -> Array:
        """[S, H] -> [S, H], head by head."""
        query, key, value = (
            np.split(
                self._dense(x, f"{scope}/attention/self/{name}"),
                self._config.num_attention_heads,
                axis=-1,
            )
            for name in ("query", "key", "value")
        )
        heads = []
        for q, k, v in zip(query, key, value, strict=True):  # [S, D] each
            scores = q @ k.T / math.sqrt(self._config.head_size)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(weights / weights.sum(axis=-1, keepdims=True) @ v)
        return np.concatenate(heads, axis=-1)

    def _dense(self, x: Array, scope: str) -> Array:
        kernel, bias = self._read(f"{scope}/kernel"), self._read(f"{scope}/bias")
        sums: Array = x @ kernel + bias
        return sums

    def _norm(self, x: Array, scope: str) -> Array:
        deviation = x - x.mean(axis=-1, keepdims=True)
        variance = (deviation**2).mean(axis=-1, keepdims=True)
        scaled = deviation / np.sqrt(variance + self._config.layer_norm_eps)
        normal: Array = scaled * self._read(f"{scope}/gamma") + self._read(f"{scope}/beta")
        return normal

    def _read(self, name: str) -> Array:
        return self._weights[name].astype(np.float64)
