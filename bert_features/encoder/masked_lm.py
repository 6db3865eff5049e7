"""The masked-LM head: from the last layer's states to log-probabilities of pieces.

As `get_masked_lm_output` of google-research/bert's run_pretraining.py. Log-probabilities are
natural logarithms and computed in float32.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `E` width of the embeddings, `V` vocab_size,
`N` positions, `K` pieces of a position.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.encoder.parts import Dense, LayerNorm, Part, Table
from bert_features.encoder.types import Tensor

# At most this many logits are held at once: 128 MiB.
_MOST_LOGITS = 1 << 25
# Their heads have this form whatever the config says.
_GELU_ERF = ("electra", "roberta", "xlm-roberta", "camembert", "mpnet", "gte")


class MaskedLMHead(Part):
    """Dense layer with activation, layer norm, product with the word embeddings, bias."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width = config.embedding_width
        activation = "gelu_erf" if config.model_type in _GELU_ERF else config.head_act
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        dense = part | {"has_bias": config.has_biases or config.classifier_bias}
        self.transform = Dense(config.hidden_size, width, activation, name="transform", **dense)
        self.norm = LayerNorm(config, width, name="norm", **part)
        self.bias = self.vector("output_bias", config.vocab_size)
        self.built = True

    def table(self) -> Table:
        """Its variables with the canonical names of their weights."""
        return [
            *self.transform.table("cls/predictions/transform/dense"),
            *self.norm.table("cls/predictions/transform/LayerNorm"),
            (self.bias, ["cls/predictions/output_bias"]),
        ]

    def call(
        self, states: Tensor, words: Tensor, top_k: int | None, target_ids: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The likeliest pieces of each position, or the log-probability of one piece of each row.

        Args:
          states: [B, S, H], the last layer.
          words: [V, E], the word embeddings.
          top_k: K.
          target_ids: instead of `top_k`: int32 [B, S], the id of the wanted piece at its position,
            -1 at all other positions of its row.

        Returns:
          int32 ids and float32 log-probabilities [B, S, K], the likeliest first; or float32
          [B, S, 1], the log-probability where there is a target, else 0.
        """
        *rows, size = ops.shape(states)
        if target_ids is None:

            def top(logits: Tensor) -> tuple[Tensor, Tensor]:
                values, ids = ops.top_k(logits, top_k)
                return ops.cast(ids, "int32"), values - _total(logits)

            results = self._in_parts(top, words, ops.reshape(states, (-1, size)))
            return tuple(ops.reshape(each, (*rows, top_k)) for each in results)

        def pick(logits: Tensor, ids: Tensor) -> tuple[Tensor]:
            return (ops.take_along_axis(logits, ids, axis=-1) - _total(logits),)

        wanted = ops.expand_dims(target_ids >= 0, 2)
        at = ops.sum(ops.where(wanted, states, ops.zeros_like(states)), axis=1)  # one of each row
        targets = ops.max(target_ids, axis=1, keepdims=True)
        (values,) = self._in_parts(pick, words, at, ops.maximum(targets, 0))
        return (ops.where(wanted, ops.expand_dims(values, 1), 0.0),)

    def _in_parts(
        self, function: Callable[..., Any], words: Tensor, states: Tensor, *others: Tensor
    ) -> Any:
        """Calls a function with the logits of some positions at a time: [N, H], … -> [N, …] each.

        All logits at once would take more memory than all else: V is 40 times H.
        """
        hidden = ops.cast(self.norm(self.transform(states)), "float32")
        # In float32 for any precision: bfloat16 would round a logit of 20 to the next eighth.
        table = ops.transpose(ops.cast(words, "float32"))
        bias = ops.cast(ops.convert_to_tensor(self.bias), "float32")

        def apply(rows: tuple[Tensor, ...]) -> Any:
            return function(ops.matmul(rows[0], table) + bias, *rows[1:])

        count = ops.shape(states)[0]
        parts = -(-count // max(_MOST_LOGITS // bias.shape[0], 1))
        if isinstance(parts, int) and parts <= 1:
            return apply((hidden, *others))
        parts = parts if isinstance(parts, int) else ops.maximum(parts, 1)
        size = -(-count // parts)
        missing = parts * size - count

        def cut(rows: Tensor) -> Tensor:
            padding = ops.zeros((missing, rows.shape[-1]), rows.dtype)
            rows_of = ops.concatenate([rows, padding], axis=0)
            return ops.reshape(rows_of, (parts, size, rows.shape[-1]))

        results = _one_by_one(apply, tuple(cut(rows) for rows in (hidden, *others)))
        return tuple(ops.reshape(each, (-1, each.shape[-1]))[:count] for each in results)


def _total(logits: Tensor) -> Tensor:
    """What log-probabilities are smaller by: [N, V] -> [N, 1]."""
    return ops.logsumexp(logits, axis=-1, keepdims=True)


def _one_by_one(function: Callable[[Any], Any], parts: tuple[Tensor, ...]) -> Any:
    """The results of each part; one part is computed at a time."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, parts)
    import tensorflow as tf

    specs = tuple(
        tf.TensorSpec([None, each.shape[-1]], each.dtype)
        for each in function(tuple(part[0] for part in parts))
    )
    return tf.map_fn(function, parts, fn_output_signature=specs, parallel_iterations=1)
