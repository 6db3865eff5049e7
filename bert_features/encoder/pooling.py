"""From the encoder's states to the wanted outputs; all of it inside the device step.

Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width, `W` words of a
row; W = S, as a row has at most S words; `M` texts of a packed row, MAX_PACKED_TEXTS; `U` units of
a row: words, spans (S again), a text or M. Everything is computed in float32 and cast at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keras import ops

from bert_features.config.features import OutputSpec
from bert_features.config.packing import SPAN_BOUNDS, TEXT_NUMBERS
from bert_features.config.poolings import DOUBLE_WIDTH, DenseModule, pooling_parts
from bert_features.encoder import kernels
from bert_features.encoder.finishing import finish, unit_length
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.packed_texts import tokens_of_texts
from bert_features.encoder.types import Tensor

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
      name -> [B, S, D] for tokens; [B, S, D] for words and spans, where row b holds its own in
      order, then zeros; [B, D] for the sequence, or [B, M, D] of packed rows. A unit without a
      counted token is zero.
    """
    states = EncoderOutputs.from_dict(encoded)
    results = {}
    for output in outputs:
        if output.pooling == "pooler":
            vectors = ops.cast(states.pooled_output, "float32")
        elif output.level not in _UNITS:
            vectors = _combine(states, output)
        else:
            units = _UNITS[output.level](batch, output, special_ids)
            vectors = _pool(_combine(states, output), units, output.pooling)
            if output.is_sequence and TEXT_NUMBERS not in batch:
                vectors = vectors[:, 0]
        results[output.name] = _finish(vectors, output, weights or {})
    return results


def _finish(vectors: Tensor, output: OutputSpec, weights: Mapping[str, Tensor]) -> Tensor:
    """[…, D] through the modules of an output; then cut, scaled to length 1, cast."""
    for module in output.modules:
        if isinstance(module, int):
            vectors = vectors[..., :module]
        elif isinstance(module, str):
            vectors = unit_length(vectors, ops)
        else:
            vectors = _dense(vectors, module, weights)
    return ops.cast(finish(vectors, output, ops), output.dtype)


def _dense(vectors: Tensor, module: DenseModule, weights: Mapping[str, Tensor]) -> Tensor:
    arrays = {name.rpartition("/")[2]: weights[name] for name in module.shapes}
    product = ops.matmul(vectors, arrays["kernel"])
    made = kernels.ACTIVATIONS[module.activation](
        product + arrays["bias"] if "bias" in arrays else product
    )
    if not module.has_residual:
        return made
    return made + (ops.matmul(vectors, arrays["residual"]) if "residual" in arrays else vectors)


# Layers into one.


def _combine(states: EncoderOutputs, output: OutputSpec) -> Tensor:
    """One float32 [B, S, H], or [B, S, K * H] for `concat`, from the encoder's states."""
    selected = [ops.cast(states.state(number), "float32") for number in output.states]
    return _COMBINERS[output.combine](selected, output.weights)


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


# Tokens into units: words, spans, or the sequence.


class _Units(NamedTuple):
    """Which tokens of each row a unit has.

    Attributes:
      inside: float32 [B, U, S], 1 for the tokens of a unit.
      numbers: int32 [B, S], the unit of each token, where the units of a row do not overlap; else
        None. Tokens that `inside` leaves out may have any number.
      bounds: int32 [B, U] each, the first token of a span and one past its last, or -1; else None.
    """

    inside: Tensor
    numbers: Tensor | None = None
    bounds: tuple[Tensor, Tensor] | None = None


def units_of_rows(batch: Mapping[str, Tensor], level: str) -> Tensor | None:
    """Keras' mask of a level: the tokens, words or spans of each row, bool [B, S].

    It is None for sequences. A row without any has its first place, as Keras divides by their
    number.
    """
    if level == "token":
        real = ops.greater(ops.cast(batch["input_mask"], "int32"), 0)
    elif level == "word":  # numbered from 0
        indices = ops.cast(batch["word_indices"], "int32")
        last = ops.max(indices, axis=1, keepdims=True, initial=-1)
        real = ops.less_equal(ops.arange(indices.shape[1], dtype="int32"), last)
    elif level == "span":
        real = ops.greater_equal(batch[SPAN_BOUNDS[0]], 0)
    else:
        return None
    first = ops.logical_or(real[:, :1], ops.logical_not(ops.any(real, axis=1, keepdims=True)))
    return ops.concatenate([first, real[:, 1:]], axis=1)


def tokens_of_words(batch: Mapping[str, Tensor]) -> Tensor:
    """Whether word w has token s as a piece, float32 [B, W, S]."""
    indices = batch["word_indices"]
    words = ops.arange(ops.shape(indices)[1], dtype="int32")
    return ops.cast(indices[:, None, :] == words[:, None], "float32")


def _words(batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]) -> _Units:
    del special_ids  # they belong to no word
    return _Units(tokens_of_words(batch), numbers=batch["word_indices"])


def _spans(batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]) -> _Units:
    del special_ids  # they belong to no span
    begins, ends = (batch[name] for name in SPAN_BOUNDS)
    tokens = ops.arange(ops.shape(begins)[1], dtype="int32")
    inside = ops.logical_and(tokens >= begins[:, :, None], tokens < ends[:, :, None])
    return _Units(ops.cast(inside, "float32"), bounds=(begins, ends))


def _texts(batch: Mapping[str, Tensor], output: OutputSpec, special_ids: Sequence[int]) -> _Units:
    """One for each row, or M for each packed one."""
    counted = batch["input_mask"] > 0
    if not output.special_tokens:
        # Not by the attention mask: the other tokens still attend to [CLS] and [SEP].
        for special in special_ids:
            counted = ops.logical_and(counted, batch["input_word_ids"] != special)
    counted, numbers = ops.expand_dims(counted, 1), batch.get(TEXT_NUMBERS)
    if numbers is not None:
        counted, numbers = ops.logical_and(counted, tokens_of_texts(numbers)), numbers - 1
    return _Units(ops.cast(counted, "float32"), numbers=numbers)


def _pool(vectors: Tensor, units: _Units, pooling: str) -> Tensor:
    """The vectors of tokens, [B, S, D], as vectors of units, [B, U, D]."""
    parts = [each for part in pooling_parts(pooling) for each in DOUBLE_WIDTH.get(part, (part,))]
    pooled = [_UNIT_POOLERS[part](vectors, units) for part in parts]
    return pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)


def _unit_sum(vectors: Tensor, inside: Tensor) -> Tensor:
    if inside.shape[1] == 1:
        return ops.sum(vectors * ops.transpose(inside, (0, 2, 1)), axis=1, keepdims=True)
    # A matrix product with ones and zeros: every device is fastest at those, and this one costs
    # little beside those of the encoder.
    return ops.matmul(inside, vectors)


def _count(inside: Tensor) -> Tensor:
    return ops.maximum(ops.sum(inside, axis=-1, keepdims=True), 1.0)  # [B, U, 1]


def _first(vectors: Tensor, units: _Units) -> Tensor:
    if units.bounds is not None:
        return _tokens_at(vectors, units.bounds[0])
    return _tokens_at(vectors, _places(units.inside, _first_place(units.inside)))


def _last(vectors: Tensor, units: _Units) -> Tensor:
    if units.bounds is not None:
        return _tokens_at(vectors, units.bounds[1] - 1)
    behind = _first_place(ops.flip(units.inside, axis=-1))
    return _tokens_at(vectors, _places(units.inside, ops.shape(units.inside)[-1] - 1 - behind))


def _first_place(inside: Tensor) -> Tensor:
    # Of integers: Keras' argmax of floats has an operation that TensorFlow Lite lacks.
    return ops.argmax(ops.cast(inside, "int32"), axis=-1)


def _places(inside: Tensor, places: Tensor) -> Tensor:
    """The places of tokens of units, int32 [B, U]; -1 for units without tokens."""
    return ops.where(ops.max(inside, axis=-1) > 0, ops.cast(places, "int32"), -1)


def _tokens_at(vectors: Tensor, places: Tensor) -> Tensor:
    """The tokens at places int32 [B, U] of the rows, [B, U, D]; zeros for negative places.

    Elsewhere than on a CPU it is the sum above: a TPU follows the indices of a gather one by one.
    """
    if chosen_forms().on_cpu:
        batch, length, width = ops.shape(vectors)
        flat = ops.arange(batch, dtype="int32")[:, None] * length + ops.maximum(places, 0)
        taken = ops.take(ops.reshape(vectors, (-1, width)), flat, axis=0)
        return ops.where(places[:, :, None] >= 0, taken, 0.0)
    tokens = ops.arange(ops.shape(vectors)[1], dtype="int32")
    return _unit_sum(vectors, ops.cast(places[:, :, None] == tokens, "float32"))


def _max(vectors: Tensor, units: _Units) -> Tensor:
    inside, numbers = units.inside, units.numbers
    if units.bounds is not None:
        return _max_of_spans(vectors, *units.bounds)
    counted = ops.transpose(ops.max(inside, axis=1, keepdims=True), (0, 2, 1)) > 0
    vectors = ops.where(counted, vectors, _LOWEST)
    if numbers is None:
        highest = ops.max(vectors, axis=1, keepdims=True)
    elif chosen_forms().on_cpu or numbers.shape[1] is None:  # in an export
        highest = _group_max(vectors, numbers)[:, : ops.shape(inside)[1]]
    else:
        return _last(_running_max(vectors, numbers), units)
    return ops.where(ops.max(inside, axis=-1, keepdims=True) > 0, highest, 0.0)


def _running_max(vectors: Tensor, numbers: Tensor) -> Tensor:
    """The largest value of a token's word or text up to that token, [B, S, D].

    It takes log2(S) steps, and each looks twice as far back (Hillis and Steele 1986, "Data parallel
    algorithms"). All steps are elementwise; a maximum by groups would be a scatter, a TPU's
    slowest operation.
    """
    back, length = 1, numbers.shape[1]
    while back < length:
        same_unit = numbers[:, back:, None] == numbers[:, :-back, None]
        earlier = ops.where(same_unit, vectors[:, :-back], _LOWEST)
        later = ops.maximum(vectors[:, back:], earlier)
        vectors = ops.concatenate([vectors[:, :back], later], axis=1)
        back *= 2
    return vectors


def _group_max(vectors: Tensor, numbers: Tensor) -> Tensor:
    """The largest value of each unit, [B, S, D], in one pass, which is fastest on a CPU."""
    batch, length, width = ops.shape(vectors)
    groups = ops.arange(batch, dtype="int32")[:, None] * length + numbers
    nowhere = batch * length
    highest = ops.segment_max(
        ops.reshape(vectors, (-1, width)),
        ops.reshape(ops.where(numbers >= 0, groups, nowhere), (-1,)),
        num_segments=nowhere + 1,
    )
    return ops.reshape(highest[:-1], (batch, length, width))


def _max_of_spans(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The maximum of two runs of 1, 2, 4, … tokens, which overlap and cover the span."""
    on_cpu = chosen_forms().on_cpu
    runs, reach = [vectors], 1  # the maxima of `reach` tokens from each on
    while 2 * reach <= (vectors.shape[1] or _LONGEST_ROW):
        later = ops.maximum(runs[-1][:, :-reach], runs[-1][:, reach:])
        if not on_cpu:  # arrays of one length compile faster; no span takes what is added
            later = ops.concatenate([later, runs[-1][:, -reach:]], axis=1)
        runs.append(later)
        reach *= 2
    lengths = ends - begins
    number = sum(ops.cast(lengths >= 2**k, "int32") for k in range(len(runs))) - 1  # of the runs
    reach = ops.left_shift(1, ops.maximum(number, 0))
    places = begins, ends - reach
    if on_cpu:
        # Two gathers of one table are fastest; a TPU would write the table to its slow memory.
        before = number * (ops.shape(vectors)[1] + 1) - (reach - 1)
        table = ops.concatenate(runs, axis=1)
        return _highest_at(table, [ops.where(number >= 0, before + at, -1) for at in places])
    return _sum(
        [
            _highest_at(run, [ops.where(number == k, at, -1) for at in places])
            for k, run in enumerate(runs)
        ]
    )


def _highest_at(vectors: Tensor, places: Sequence[Tensor]) -> Tensor:
    return ops.maximum(*(_tokens_at(vectors, at) for at in places))


_UNIT_POOLERS: dict[str, Callable[[Tensor, _Units], Tensor]] = {
    "cls": lambda vectors, units: (
        vectors[:, :1] if units.numbers is None else _first(vectors, units)
    ),
    "first": _first,
    "last": _last,
    "max": _max,
    "mean": lambda vectors, units: _unit_sum(vectors, units.inside) / _count(units.inside),
    # sentence-transformers' pooling_mode_mean_sqrt_len_tokens: between a sum and a mean.
    "sqrt_len_mean": lambda vectors, units: (
        _unit_sum(vectors, units.inside) / ops.sqrt(_count(units.inside))
    ),
    "sum": lambda vectors, units: _unit_sum(vectors, units.inside),
}

_UNITS: dict[str, Callable[[Mapping[str, Tensor], OutputSpec, Sequence[int]], _Units]] = {
    "word": _words,
    "span": _spans,
    "sequence": _texts,
}
