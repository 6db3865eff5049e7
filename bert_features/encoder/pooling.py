"""From the encoder's states to the outputs asked for; all of it inside the device step.

Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width, `W` words of a
row, for which there is room for S. Everything is computed in float32 and cast at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras import ops

from bert_features.config.outputs import OutputSpec
from bert_features.encoder import kernels

# Below this a vector is left as it is when it is scaled to length 1.
_SHORTEST = 1e-12
# Smaller than any state of an encoder, whose layer norm bounds it by sqrt(H) * |gamma| + |beta|.
_LOWEST = -1e9


def compute_outputs(
    encoded: Mapping[str, Any],
    batch: Mapping[str, Any],
    outputs: Sequence[OutputSpec],
    special_ids: Sequence[int],
) -> dict[str, Any]:
    """The outputs of one batch.

    Args:
      encoded: what `BertEncoder` gives: `embedding_output` [B, S, H], `encoder_outputs`, a list of
        [B, S, H], and `pooled_output` [B, H] if an output is of the pooler.
      batch: `input_word_ids`, `input_mask` int32 [B, S]; and `word_indices` int32 [B, S] if an
        output is of words: the number of each token's word in its row, from 0, and -1 for tokens
        of none.
      outputs: what is wanted.
      special_ids: the ids of [CLS] and [SEP], which no text has.

    Returns:
      name -> [B, S, D] for tokens; [B, S, D] for words, of which row b has as many as
      `word_indices[b]` numbers; [B, D] for the sequence. An output of nothing (a sequence without
      a counted token, a word without a piece) is zero.
    """
    states = [encoded["embedding_output"], *encoded["encoder_outputs"]]
    results = {}
    for output in outputs:
        if output.is_pooled_output:
            vectors = ops.cast(encoded["pooled_output"], "float32")
        else:
            vectors = _POOLERS[output.level](_combine(states, output), batch, output, special_ids)
        results[output.name] = _finish(vectors, output)
    return results


def _finish(vectors: Any, output: OutputSpec) -> Any:
    """[…, D or more] -> […, D]: cut, scaled to length 1, cast."""
    vectors = vectors[..., : output.width]
    if output.normalize:
        norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
        vectors = vectors / ops.maximum(norm, _SHORTEST)
    return ops.cast(vectors, output.dtype)


# Layers into one.


def _combine(states: Sequence[Any], output: OutputSpec) -> Any:
    """One float32 [B, S, H], or [B, S, K * H] for `concat`, from the encoder's states."""
    wanted = [ops.cast(states[state], "float32") for state in output.states]
    return _COMBINERS[output.combine](wanted, output.weights)


def _sum(states: Sequence[Any], weights: Sequence[float] = ()) -> Any:
    total = states[0]
    for state in states[1:]:
        total = total + state
    return total


_COMBINERS: dict[str, Callable[[Sequence[Any], Sequence[float]], Any]] = {
    "none": lambda states, _: states[0],
    "sum": _sum,
    "mean": lambda states, _: _sum(states) * (1.0 / len(states)),
    "concat": lambda states, _: ops.concatenate(states, axis=-1),
    "weighted": lambda states, weights: _sum(
        [state * weight for state, weight in zip(states, weights, strict=True)]
    ),
}


# Tokens into words. The pieces of a word stand side by side in a row.


def _pool_words(
    vectors: Any, batch: Mapping[str, Any], output: OutputSpec, special_ids: Sequence[int]
) -> Any:
    del special_ids  # they belong to no word
    indices = batch["word_indices"]
    length = ops.shape(indices)[1]
    # [B, S, W]: whether token s is a piece of word w.
    pieces = ops.cast(indices[:, :, None] == ops.arange(length, dtype="int32"), "float32")
    counts = ops.sum(pieces, axis=1)[:, :, None]  # [B, W, 1]
    return _WORD_POOLERS[output.pooling](vectors, indices, pieces, counts)


def _word_sum(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    # A matrix product of ones and zeros: what every device does best, and its width is S, so that
    # it costs little beside the encoder's own.
    return ops.matmul(ops.transpose(pieces, (0, 2, 1)), vectors)


def _word_mean(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    return _word_sum(vectors, indices, pieces, counts) / ops.maximum(counts, 1.0)


def _word_first(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    return _word_sum(vectors, indices, pieces * _at_edges(indices, 1), counts)


def _word_last(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    return _word_sum(vectors, indices, pieces * _at_edges(indices, -1), counts)


def _at_edges(indices: Any, step: int) -> Any:
    """float32 [B, S, 1]: 1 where the token `step` before is not of the same word.

    Of each word this leaves one piece in the matrix product above. A gather would have an index for
    every value of a row, which a TPU follows one by one.
    """
    beyond = ops.full_like(indices[:, :1], -1)
    if step > 0:
        neighbours = ops.concatenate([beyond, indices[:, :-1]], axis=1)
    else:
        neighbours = ops.concatenate([indices[:, 1:], beyond], axis=1)
    return ops.cast(indices != neighbours, "float32")[:, :, None]


def _word_first_last(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    arguments = (vectors, indices, pieces, counts)
    return ops.concatenate([_word_first(*arguments), _word_last(*arguments)], axis=-1)


def _word_max(vectors: Any, indices: Any, pieces: Any, counts: Any) -> Any:
    # An export does not know the length of its rows.
    if kernels.on_cpu() or indices.shape[1] is None:
        return _segment_max(vectors, indices, counts)
    return _word_last(_running_max(vectors, indices), indices, pieces, counts)


def _running_max(vectors: Any, indices: Any) -> Any:
    """The largest value of a token's word up to that token, [B, S, D].

    In log2(S) steps, each of which looks twice as far back (Hillis and Steele 1986, "Data parallel
    algorithms"): elementwise, where a maximum by segments is a scatter, a TPU's slowest operation.
    """
    back, length = 1, indices.shape[1]
    while back < length:
        same_word = indices[:, back:, None] == indices[:, :-back, None]
        earlier = ops.where(same_word, vectors[:, :-back], _LOWEST)
        later = ops.maximum(vectors[:, back:], earlier)
        vectors = ops.concatenate([vectors[:, :back], later], axis=1)
        back *= 2
    return vectors


def _segment_max(vectors: Any, indices: Any, counts: Any) -> Any:
    """The largest value of each word in one pass, as a CPU likes it, [B, W, D]."""
    batch, length, width = ops.shape(vectors)
    segments = ops.arange(batch, dtype="int32")[:, None] * length + indices
    nowhere = batch * length
    highest = ops.segment_max(
        ops.reshape(vectors, (-1, width)),
        ops.reshape(ops.where(indices >= 0, segments, nowhere), (-1,)),
        num_segments=nowhere + 1,
    )
    return ops.where(counts > 0, ops.reshape(highest[:-1], (batch, length, width)), 0.0)


_WORD_POOLERS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "mean": _word_mean,
    "first": _word_first,
    "last": _word_last,
    "first_last": _word_first_last,
    "sum": _word_sum,
    "max": _word_max,
}


# Tokens into one vector of the sequence.


def _pool_sequence(
    vectors: Any, batch: Mapping[str, Any], output: OutputSpec, special_ids: Sequence[int]
) -> Any:
    counted = batch["input_mask"] > 0
    if not output.special_tokens:
        # Not by the attention mask: what the other tokens see stays as it is.
        for special in special_ids:
            counted = ops.logical_and(counted, batch["input_word_ids"] != special)
    weights = ops.cast(counted, "float32")  # [B, S]
    return _SEQUENCE_POOLERS[output.pooling](vectors, weights)


def _count(weights: Any) -> Any:
    return ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0)  # [B, 1]


def _sequence_sum(vectors: Any, weights: Any) -> Any:
    return ops.sum(vectors * weights[:, :, None], axis=1)


def _sequence_mean(vectors: Any, weights: Any) -> Any:
    return _sequence_sum(vectors, weights) / _count(weights)


def _sequence_max(vectors: Any, weights: Any) -> Any:
    highest = ops.max(ops.where(weights[:, :, None] > 0, vectors, _LOWEST), axis=1)
    return highest * ops.max(weights, axis=1, keepdims=True)


def _sequence_first(vectors: Any, weights: Any) -> Any:
    return _sequence_at(vectors, weights, ops.argmax(weights, axis=1))


def _sequence_last(vectors: Any, weights: Any) -> Any:
    last = ops.shape(weights)[1] - 1 - ops.argmax(ops.flip(weights, axis=1), axis=1)
    return _sequence_at(vectors, weights, last)


def _sequence_at(vectors: Any, weights: Any, positions: Any) -> Any:
    """The token at int [B], zero if it does not count; by a sum, not a gather: see `_at_edges`."""
    tokens = ops.arange(ops.shape(weights)[1], dtype="int32")
    there = ops.cast(tokens[None] == ops.cast(positions, "int32")[:, None], "float32")
    return _sequence_sum(vectors, weights * there)


_SEQUENCE_POOLERS: dict[str, Callable[[Any, Any], Any]] = {
    "cls": lambda vectors, weights: vectors[:, 0],
    "mean": _sequence_mean,
    "max": _sequence_max,
    "mean_max": lambda vectors, weights: ops.concatenate(
        [_sequence_mean(vectors, weights), _sequence_max(vectors, weights)], axis=-1
    ),
    "first": _sequence_first,
    "last": _sequence_last,
    # sentence-transformers' pooling_mode_mean_sqrt_len_tokens: between a sum and a mean.
    "sqrt_len_mean": lambda vectors, weights: (
        _sequence_sum(vectors, weights) / ops.sqrt(_count(weights))
    ),
}

_POOLERS: dict[str, Callable[[Any, Mapping[str, Any], OutputSpec, Sequence[int]], Any]] = {
    "token": lambda vectors, batch, output, special_ids: vectors,
    "word": _pool_words,
    "sequence": _pool_sequence,
}
