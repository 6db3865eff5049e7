"""The masked-LM head: from the states of a layer to log-probabilities of pieces.

As `get_masked_lm_output` of google-research/bert's run_pretraining.py. Log-probabilities are
natural logarithms and computed in float32.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `E` width of the embeddings, `V` vocab_size,
`N` positions, `K` pieces of a position.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.encoder.in_parts import MOST_LOGITS, in_parts
from bert_features.encoder.parts import Dense, LayerNorm, Part, Table
from bert_features.encoder.terms import Pooled, heaviest
from bert_features.encoder.types import Tensor

# Their heads have this form whatever the config says.
_GELU_ERF = ("electra", "roberta", "xlm-roberta", "camembert", "mpnet", "gte")


class MaskedLMHead(Part):
    """Dense layer with activation, layer norm, product with the word embeddings, bias.

    The rows of the word embeddings behind the `pieces` of the vocabulary are no terms.
    """

    def __init__(self, config: BertConfig, pieces: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width = config.embedding_width
        activation = "gelu_erf" if config.model_type in _GELU_ERF else config.head_act
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        dense = part | {"has_bias": config.has_biases or config.classifier_bias}
        self.transform = Dense(config.hidden_size, width, activation, name="transform", **dense)
        self.norm = LayerNorm(config, width, name="norm", **part)
        self.bias = self.vector("output_bias", config.vocab_size)
        self.built, self.pieces = True, pieces

    def table(self) -> Table:
        """Its variables with the canonical names of their weights."""
        return [
            *self.transform.table("cls/predictions/transform/dense"),
            *self.norm.table("cls/predictions/transform/LayerNorm"),
            (self.bias, ["cls/predictions/output_bias"]),
        ]

    def call(
        self,
        states: Tensor,
        words: Tensor,
        top_k: int | None,
        target_ids: Tensor | None,
        pooled: Pooled | None = None,
    ) -> tuple[Tensor, ...]:
        """The likeliest pieces of each position, the log-probability of one piece of each row, or
        the heaviest pieces of each row.

        Args:
          states: [B, S, H], of any layer.
          words: [V, E], the word embeddings.
          top_k: K.
          target_ids: instead of `top_k`: int32 [B, S], the id of the wanted piece at its position,
            -1 at all other positions of its row.
          pooled: how the logits of each row are pooled; see `encoder.terms`.

        Returns:
          int32 ids and float32 log-probabilities [B, S, K], the likeliest first; or float32
          [B, S, 1], the log-probability where there is a target, else 0; or what `heaviest` gives.
        """
        *rows, size = ops.shape(states)
        if pooled is not None and top_k is not None:
            hidden = self._hidden(ops.reshape(states, (-1, size)))
            hidden = ops.reshape(hidden, (*rows, hidden.shape[-1]))
            table, bias = (each[: self.pieces] for each in self._output(words))
            return (heaviest(hidden, table, bias, top_k, pooled),)
        if target_ids is None:

            def top(logits: Tensor) -> tuple[Tensor, Tensor]:
                values, ids = ops.top_k(logits, top_k)
                return ops.cast(ids, "int32"), values - _total(logits)

            results = self._in_parts(top, words, ops.reshape(states, (-1, size)))
            return tuple(ops.reshape(each, (*rows, top_k)) for each in results)

        def pick(logits: Tensor, ids: Tensor) -> tuple[Tensor]:
            return (ops.take_along_axis(logits, ids, axis=-1) - _total(logits),)

        places = ops.expand_dims(target_ids >= 0, 2)
        at = ops.sum(ops.where(places, states, ops.zeros_like(states)), axis=1)  # one of each row
        targets = ops.max(target_ids, axis=1, keepdims=True)
        (values,) = self._in_parts(pick, words, at, ops.maximum(targets, 0))
        return (ops.where(places, ops.expand_dims(values, 1), 0.0),)

    def _in_parts(
        self, function: Callable[..., Any], words: Tensor, states: Tensor, *others: Tensor
    ) -> Any:
        """Calls a function with the logits of some positions at a time: [N, H], … -> [N, …] each.

        All logits at once would take more memory than all else: V is 40 times H.
        """
        hidden, (table, bias) = self._hidden(states), self._output(words)
        table = ops.transpose(table)

        def apply(rows: tuple[Tensor, ...]) -> Any:
            return function(ops.matmul(rows[0], table) + bias, *rows[1:])

        return in_parts(apply, max(MOST_LOGITS // bias.shape[0], 1), hidden, *others)

    def _hidden(self, states: Tensor) -> Tensor:
        """What logits are a product with, float32 [..., E]."""
        return ops.cast(self.norm(self.transform(states)), "float32")

    def _output(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the product, [V, E] and [V]."""
        # In float32 for any precision: bfloat16 would round a logit of 20 to the next eighth.
        bias = ops.cast(ops.convert_to_tensor(self.bias), "float32")
        return ops.cast(words, "float32"), bias


def _total(logits: Tensor) -> Tensor:
    """What log-probabilities are smaller by: [N, V] -> [N, 1]."""
    return ops.logsumexp(logits, axis=-1, keepdims=True)
