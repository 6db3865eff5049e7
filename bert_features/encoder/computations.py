"""What the device step computes for each kind of output."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keras import ops

from bert_features.config.features import OutputSpec
from bert_features.config.output_specs import dense_modules
from bert_features.config.packing import TARGET_IDS
from bert_features.config.poolings import LOOKUP, OWN
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.pooling import compute_outputs, tokens_of_words
from bert_features.encoder.terms import Pooled
from bert_features.encoder.types import Tensor

Predictions = dict[str, Tensor]
# The masked-LM head: called with a state and K, or None and ids of targets, or K, None and how
# logits are pooled; see `MaskedLMHead.call`.
Head = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Encoded:
    """A batch and what the encoder made of it.

    Attributes:
      states: what `BertEncoder` returns.
      batch: the inputs of the step, int32 [B, S] each.
      attention: the weights of each wanted layer, [B, A, S, S].
      special_ids: the ids of [CLS] and [SEP].
      unknown_id: the id of [UNK]; -1 without one.
      dense: weights of Dense modules by canonical name.
      head: the masked-LM head; None if no output needs it.
    """

    states: Mapping[str, Any]
    batch: Mapping[str, Tensor]
    attention: Mapping[int, Tensor] = field(default_factory=dict)
    special_ids: Sequence[int] = ()
    unknown_id: int = -1
    dense: Mapping[str, Tensor] = field(default_factory=dict)
    head: Head | None = None

    def read(self, number: int, *arguments: Any) -> tuple[Tensor, ...]:
        """What the masked-LM head reads from a state, as it is: transformers' `hidden_states`."""
        assert self.head is not None
        return self.head(EncoderOutputs.from_dict(self.states).state(number), *arguments)


def _layers(encoded: Encoded, outputs: Sequence[OutputSpec]) -> Predictions:
    return compute_outputs(
        encoded.states, encoded.batch, outputs, encoded.special_ids, encoded.dense
    )


def _show_attention(weights: Tensor, batch: Mapping[str, Tensor], output: OutputSpec) -> Tensor:
    """An output of kind `attention`, computed in float32 and cast at the end.

    Words as in Clark et al. 2019, "What Does BERT Look At?" (arXiv:1906.04341): attention to a word
    is the sum over its pieces, and attention from a word the mean over its pieces.

    The weights are those of its layer, [B, A, S, S], from each token to each token; the batch is
    that of `pooling.compute_outputs`. The result is for pairs [B, D, S, S] or [B, D, W, W]; of
    [CLS] alone [B, S, D] or [B, W, D]. Rows and columns of padding, and behind the words of a row,
    are of no use.
    """
    weights = ops.cast(weights, "float32")
    if not output.is_paired:
        weights = weights[:, :, :1]
    if isinstance(output.heads[0], int) and output.heads != tuple(range(weights.shape[1])):
        weights = ops.stack([weights[:, head] for head in output.heads], axis=1)
    if output.heads == ("mean",):
        weights = ops.mean(weights, axis=1, keepdims=True)
    if output.unit == "word":
        pieces = ops.expand_dims(tokens_of_words(batch), 1)
        weights = ops.matmul(weights, ops.transpose(pieces, (0, 1, 3, 2)))
        if output.is_paired:
            counts = ops.sum(pieces, axis=-1, keepdims=True)
            weights = ops.matmul(pieces / ops.maximum(counts, 1.0), weights)
    if output.heads == ("max",):
        weights = ops.max(weights, axis=1, keepdims=True)
    if not output.is_paired:
        weights = ops.transpose(weights[:, :, 0], (0, 2, 1))
    return ops.cast(weights, output.dtype)


def _attention(encoded: Encoded, outputs: Sequence[OutputSpec]) -> Predictions:
    return {
        output.name: _show_attention(encoded.attention[output.states[0]], encoded.batch, output)
        for output in outputs
    }


def _masked_lm(encoded: Encoded, outputs: Sequence[OutputSpec]) -> Predictions:
    wanted = {(o.states[0], o.width) for o in outputs}
    computed = {each: encoded.read(*each, None) for each in wanted}
    # Ids are int32 and come first.
    return {o.name: computed[o.states[0], o.width][o.dtype != "int32"] for o in outputs}


def _score(encoded: Encoded, outputs: Sequence[OutputSpec]) -> Predictions:
    targets = encoded.batch[TARGET_IDS]
    return {o.name: encoded.read(o.states[0], None, targets)[0] for o in outputs}


def _sparse(encoded: Encoded, outputs: Sequence[OutputSpec]) -> Predictions:
    (output,) = outputs  # a run has one
    ids, mask = (encoded.batch[name] for name in ("input_word_ids", "input_mask"))
    if output.pooling == LOOKUP:
        (table,) = (encoded.dense[name] for each in dense_modules(outputs) for name in each.shapes)
        weights = ops.take(table, ids, axis=0)
        for special in encoded.special_ids:
            mask = ops.where(ids == special, 0, mask)
        return {output.name: weights * ops.cast(ops.expand_dims(mask, -1), weights.dtype)}
    if output.pooling == OWN:
        weights = _layers(encoded, [replace(output, level="token")])[output.name]
        for other in (*encoded.special_ids, encoded.unknown_id):
            mask = ops.where(ids == other, 0, mask)
        return {output.name: ops.where(ops.expand_dims(mask, -1) > 0, weights, 0.0)}
    pooled = Pooled(mask, output.pooling, output.min_weight)
    return {output.name: encoded.read(output.states[0], output.max_units, None, pooled)[0]}


# Name of a kind -> the function that computes all outputs of the kind: name -> tensor, shaped as
# `DeviceStep.step` says.
COMPUTE: dict[str, Callable[[Encoded, Sequence[OutputSpec]], Predictions]] = {
    "layers": _layers,
    "attention": _attention,
    "masked_lm": _masked_lm,
    # Of all tokens; the host drops those that have no vector.
    "multi_vector": lambda encoded, outputs: _layers(
        encoded, [replace(output, level="token") for output in outputs]
    ),
    "score": _score,
    "sparse": _sparse,
}
