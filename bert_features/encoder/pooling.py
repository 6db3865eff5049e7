"""From the encoder's states to the wanted outputs; all of it inside the device step.

Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width, `W` words of a
row; W = S, as a row has at most S words; `M` texts of a packed row, MAX_PACKED_TEXTS. Everything is
computed in float32 and cast at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras import ops

from bert_features.config.features import OutputSpec
from bert_features.config.packing import MAX_PACKED_TEXTS, SPAN_BOUNDS, TEXT_NUMBERS
from bert_features.config.poolings import DenseModule, Module, pooling_parts
from bert_features.encoder import kernels
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.packed_texts import tokens_of_texts
from bert_features.encoder.types import Tensor

# Scaling to length 1 divides by at least this.
_MIN_NORM = 1e-12
# Smaller than any state of an encoder, whose layer norm bounds it by sqrt(H) * |gamma| + |beta|.
_LOWEST = -1e9
_LONGEST_ROW = 1 << 15  # tokens, where a graph takes rows of any length


def compute_outputs(
    encoded: Mapping[str, Any],
    batch: Mapping[str, Tensor],
    outputs: Sequence[OutputSpec],
    special_ids: Sequence[int],
    weights: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The outputs of one batch.

    Args:
      encoded: what `BertEncoder` returns: `embedding_output` [B, S, H], `encoder_outputs`, a list
        of [B, S, H], and `pooled_output` [B, H] or [B, M, H] if an output uses the pooler.
      batch: `input_word_ids`, `input_mask` int32 [B, S]; and, for outputs of level `word`,
        `word_indices` int32 [B, S]: the number of each token's word in its row, from 0, or -1 for
        tokens that belong to no word; SPAN_BOUNDS for `span`; and `text_numbers` of packed rows,
        see `config.packing`.
      outputs: what is wanted.
      special_ids: the ids of [CLS] and [SEP], which no text contains.
      weights: those of `DenseModule`, float32 by canonical name, if an output has one.

    Returns:
      name -> [B, S, D] for tokens; [B, S, D] for words, where row b holds its words in order, then
      zeros; [B, D] for the sequence, or [B, M, D] of packed rows. A sequence without a counted
      token and a word without a piece are zero.
    """
    states = EncoderOutputs.from_dict(encoded)
    results = {}
    for output in outputs:
        if output.pooling == "pooler":
            vectors = ops.cast(states.pooled_output, "float32")
        else:
            vectors = _POOLERS[output.level](_combine(states, output), batch, output, special_ids)
        results[output.name] = _finish(vectors, output, weights or {})
    return results


def _finish(vectors: Tensor, output: OutputSpec, weights: Mapping[str, Tensor]) -> Tensor:
    """[…, D] through the modules of an output; then cut, scaled to length 1, cast."""
    last: tuple[Module, ...] = ("normalize",) if output.normalize else ()
    for module in (*output.modules, output.width, *last):
        if isinstance(module, int):
            vectors = vectors[..., :module]
        elif isinstance(module, str):
            norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
            vectors = vectors / ops.maximum(norm, _MIN_NORM)
        else:
            vectors = _dense(vectors, module, weights)
    return ops.cast(vectors, output.dtype)


def _dense(vectors: Tensor, module: DenseModule, weights: Mapping[str, Tensor]) -> Tensor:
    own = {name.rpartition("/")[2]: weights[name] for name in module.shapes}
    product = ops.matmul(vectors, own["kernel"])
    made = kernels.ACTIVATIONS[module.activation](
        product + own["bias"] if "bias" in own else product
    )
    if not module.has_residual:
        return made
    return made + (ops.matmul(vectors, own["residual"]) if "residual" in own else vectors)


# Layers into one.


def _combine(states: EncoderOutputs, output: OutputSpec) -> Tensor:
    """One float32 [B, S, H], or [B, S, K * H] for `concat`, from the encoder's states."""
    wanted = [ops.cast(states.state(number), "float32") for number in output.states]
    return _COMBINERS[output.combine](wanted, output.weights)


def _sum(states: Sequence[Tensor]) -> Tensor:
    total = states[0]
    for state in states[1:]:
        total = total + state
    return total


_COMBINERS: dict[str, Callable[[Sequence[Tensor], Sequence[float]], Tensor]] = {
    "none": lambda states, _: states[0],
    "sum": lambda states, _: _sum(states),
    "mean": lambda states, _: _sum(states) * (1.0 / len(states)),
    "concat": lambda states, _: ops.concatenate(states, axis=-1),
    "weighted": lambda states, weights: _sum(
        [state * weight for state, weight in zip(states, weights, strict=True)]
    ),
}


# Tokens into words. The pieces of a word stand side by side in a row.


def _pool_words(
    vectors: Tensor, batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]
) -> Tensor:
    del special_ids  # they belong to no word
    pieces, counts = pieces_of_words(batch)
    return _WORD_POOLERS[output.pooling](vectors, batch["word_indices"], pieces, counts[:, :, None])


def pieces_of_words(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Whether token s is a piece of word w, float32 [B, S, W]; the number of pieces, [B, W]."""
    indices = batch["word_indices"]
    length = ops.shape(indices)[1]
    pieces = ops.cast(indices[:, :, None] == ops.arange(length, dtype="int32"), "float32")
    return pieces, ops.sum(pieces, axis=1)


def _word_sum(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    # A matrix product with ones and zeros: every device is fastest at those, and this one costs
    # little beside those of the encoder.
    return ops.matmul(ops.transpose(pieces, (0, 2, 1)), vectors)


def _word_mean(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    return _word_sum(vectors, indices, pieces, counts) / ops.maximum(counts, 1.0)


def _word_first(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    return _word_sum(vectors, indices, pieces * _at_edges(indices, 1), counts)


def _word_last(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    return _word_sum(vectors, indices, pieces * _at_edges(indices, -1), counts)


def _at_edges(indices: Tensor, step: int) -> Tensor:
    """float32 [B, S, 1]: 1 where the token `step` before belongs to another word, else 0.

    So the matrix product above takes one piece of each word. A gather would need an index for every
    value of a row, and a TPU follows indices one by one.
    """
    beyond = ops.full_like(indices[:, :1], -1)
    if step > 0:
        neighbours = ops.concatenate([beyond, indices[:, :-1]], axis=1)
    else:
        neighbours = ops.concatenate([indices[:, 1:], beyond], axis=1)
    return ops.cast(indices != neighbours, "float32")[:, :, None]


def _word_first_last(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    arguments = (vectors, indices, pieces, counts)
    return ops.concatenate([_word_first(*arguments), _word_last(*arguments)], axis=-1)


def _word_max(vectors: Tensor, indices: Tensor, pieces: Tensor, counts: Tensor) -> Tensor:
    # In an export the length of rows is unknown.
    if chosen_forms().on_cpu or indices.shape[1] is None:
        return _group_max(vectors, indices, counts)
    return _word_last(_running_max(vectors, indices), indices, pieces, counts)


def _running_max(vectors: Tensor, indices: Tensor) -> Tensor:
    """The largest value of a token's word or text up to that token, [B, S, D].

    It takes log2(S) steps, and each looks twice as far back (Hillis and Steele 1986, "Data parallel
    algorithms"). All steps are elementwise; a maximum by groups would be a scatter, a TPU's
    slowest operation.
    """
    back, length = 1, indices.shape[1]
    while back < length:
        same_word = indices[:, back:, None] == indices[:, :-back, None]
        earlier = ops.where(same_word, vectors[:, :-back], _LOWEST)
        later = ops.maximum(vectors[:, back:], earlier)
        vectors = ops.concatenate([vectors[:, :back], later], axis=1)
        back *= 2
    return vectors


def _group_max(vectors: Tensor, indices: Tensor, counts: Tensor) -> Tensor:
    """The largest value of each word, [B, W, D], in one pass, which is fastest on a CPU."""
    batch, length, width = ops.shape(vectors)
    groups = ops.arange(batch, dtype="int32")[:, None] * length + indices
    nowhere = batch * length
    highest = ops.segment_max(
        ops.reshape(vectors, (-1, width)),
        ops.reshape(ops.where(indices >= 0, groups, nowhere), (-1,)),
        num_segments=nowhere + 1,
    )
    return ops.where(counts > 0, ops.reshape(highest[:-1], (batch, length, width)), 0.0)


_WORD_POOLERS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "mean": _word_mean,
    "first": _word_first,
    "last": _word_last,
    "first_last": _word_first_last,
    "sum": _word_sum,
    "max": _word_max,
}


# Tokens into spans, which may overlap. As of words, a product with ones and zeros, [B, S, S].


def _pool_spans(
    vectors: Tensor, batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]
) -> Tensor:
    del special_ids  # they belong to no span
    begins, ends = (batch[name] for name in SPAN_BOUNDS)
    return _SPAN_POOLERS[output.pooling](vectors, begins, ends)


def _span_mean(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    tokens = ops.arange(ops.shape(begins)[1], dtype="int32")
    inside = ops.logical_and(tokens >= begins[:, :, None], tokens < ends[:, :, None])
    weights = ops.cast(inside, "float32")
    return ops.matmul(weights, vectors) / ops.maximum(ops.sum(weights, -1, keepdims=True), 1.0)


def _tokens_at(vectors: Tensor, places: Tensor) -> Tensor:
    """The tokens at places int32 [B, K] of the rows, [B, K, D]; zeros where there is no token."""
    if chosen_forms().on_cpu:  # no gather on TPUs, see `_at_edges`
        batch, length, width = ops.shape(vectors)
        flat = ops.arange(batch, dtype="int32")[:, None] * length + ops.maximum(places, 0)
        taken = ops.take(ops.reshape(vectors, (-1, width)), flat, axis=0)
        return ops.where(places[:, :, None] >= 0, taken, 0.0)
    tokens = ops.arange(ops.shape(vectors)[1], dtype="int32")
    return ops.matmul(ops.cast(places[:, :, None] == tokens, "float32"), vectors)


def _span_first(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    return _tokens_at(vectors, begins)


def _span_last(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    return _tokens_at(vectors, ends - 1)


def _span_first_last(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    parts = [_tokens_at(vectors, places) for places in (begins, ends - 1)]
    return ops.concatenate(parts, axis=-1)


def _span_max(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The maximum of two runs of 1, 2, 4, … tokens, which overlap and cover the span."""
    lengths, reach, most = ends - begins, 1, vectors.shape[1] or _LONGEST_ROW
    highest = vectors  # of `reach` tokens from each on
    result = ops.zeros_like(vectors)
    while True:
        own = ops.logical_and(lengths >= reach, lengths < 2 * reach)
        runs = (ops.where(own, places, -1) for places in (begins, ends - reach))
        result = result + ops.maximum(*(_tokens_at(highest, places) for places in runs))
        if 2 * reach > most:
            return result
        later = ops.maximum(highest[:, :-reach], highest[:, reach:])
        highest = ops.concatenate([later, highest[:, -reach:]], axis=1)
        reach *= 2


_SPAN_POOLERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mean": _span_mean,
    "max": _span_max,
    "first": _span_first,
    "last": _span_last,
    "first_last": _span_first_last,
}


# Tokens into one vector of the sequence.


def _pool_sequence(
    vectors: Tensor, batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]
) -> Tensor:
    counted = batch["input_mask"] > 0
    if not output.special_tokens:
        # Not by the attention mask: the other tokens still attend to [CLS] and [SEP].
        for special in special_ids:
            counted = ops.logical_and(counted, batch["input_word_ids"] != special)
    numbers = batch.get(TEXT_NUMBERS)
    if numbers is not None:
        counted = ops.logical_and(ops.expand_dims(counted, 1), tokens_of_texts(numbers))
    weights = ops.cast(counted, "float32")  # [B, S], or [B, M, S] of packed rows
    pooled = [
        _SEQUENCE_POOLERS[part](vectors, weights, numbers) for part in pooling_parts(output.pooling)
    ]
    return pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)


def _count(weights: Tensor) -> Tensor:
    return ops.maximum(ops.sum(weights, axis=-1, keepdims=True), 1.0)  # [B, 1] or [B, M, 1]


def _sequence_sum(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    if numbers is None:
        return ops.sum(vectors * ops.expand_dims(weights, 2), axis=1)
    return ops.matmul(weights, vectors)  # see `_word_sum`


def _sequence_mean(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    return _sequence_sum(vectors, weights, numbers) / _count(weights)


def _sequence_max(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    if numbers is None:
        highest = ops.max(ops.where(ops.expand_dims(weights, 2) > 0, vectors, _LOWEST), axis=1)
    else:
        vectors = ops.where(ops.max(weights, axis=1)[:, :, None] > 0, vectors, _LOWEST)
        if chosen_forms().on_cpu or numbers.shape[1] is None:  # as in `_word_max`
            highest_of_texts = _group_max(vectors, numbers - 1, ops.ones_like(vectors[:, :, :1]))
            highest = ops.maximum(highest_of_texts[:, :MAX_PACKED_TEXTS], _LOWEST)
        else:
            highest = _sequence_last(_running_max(vectors, numbers), weights, numbers)
    return highest * ops.max(weights, axis=-1, keepdims=True)


def _sequence_first(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    first = ops.argmax(ops.cast(weights, "int32"), axis=-1)
    return _sequence_at(vectors, weights, numbers, first)


def _sequence_last(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    last = ops.shape(weights)[-1] - 1 - ops.argmax(ops.flip(weights, axis=-1), axis=-1)
    return _sequence_at(vectors, weights, numbers, last)


def _sequence_at(
    vectors: Tensor, weights: Tensor, numbers: Tensor | None, positions: Tensor
) -> Tensor:
    """The token at int [B] or [B, M], zero if it is not counted; a sum is faster: `_at_edges`."""
    tokens = ops.arange(ops.shape(weights)[-1], dtype="int32")
    positions = ops.expand_dims(ops.cast(positions, "int32"), -1)
    there = ops.cast(tokens == positions, "float32")
    return _sequence_sum(vectors, weights * there, numbers)


def _sequence_cls(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    return vectors[:, 0] if numbers is None else _sequence_first(vectors, weights, numbers)


def _sequence_mean_max(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    arguments = (vectors, weights, numbers)
    return ops.concatenate([_sequence_mean(*arguments), _sequence_max(*arguments)], axis=-1)


def _sequence_sqrt_len_mean(vectors: Tensor, weights: Tensor, numbers: Tensor | None) -> Tensor:
    # sentence-transformers' pooling_mode_mean_sqrt_len_tokens: between a sum and a mean.
    return _sequence_sum(vectors, weights, numbers) / ops.sqrt(_count(weights))


_SEQUENCE_POOLERS: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "cls": _sequence_cls,
    "mean": _sequence_mean,
    "max": _sequence_max,
    "mean_max": _sequence_mean_max,
    "first": _sequence_first,
    "last": _sequence_last,
    "sqrt_len_mean": _sequence_sqrt_len_mean,
}

_POOLERS: dict[str, Callable[[Tensor, Mapping[str, Tensor], OutputSpec, Sequence[int]], Tensor]] = {
    "token": lambda vectors, batch, output, special_ids: vectors,
    "word": _pool_words,
    "span": _pool_spans,
    "sequence": _pool_sequence,
}
