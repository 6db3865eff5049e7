"""How the rows of each kind of output are put together, where it is not as its level says.

Shape legend: `N` examples of a megabatch, `R` their rows, `T` tokens that the rows own, `W` words,
`U` vectors of an output, `D` width, `K` the most terms of a row or example.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bert_features.batches.input_fn import Megabatch
from bert_features.batches.row_plan import count_by_row
from bert_features.config.features import OutputSpec
from bert_features.config.packing import SCORED, TARGET_IDS
from bert_features.config.poolings import TOKEN_WEIGHTS
from bert_features.formats.records import Rows, splits_of


class DeviceValues(NamedTuple):
    """The values of an output that the device computed for a megabatch, in their places.

    Attributes:
      megabatch: the megabatch.
      values: [T, D] of tokens or [R, D] of the sequence.
      tokens: int64 [T], the tokens that rows own, as places in the columns of the megabatch.
      splits: int64 [N + 1], where the tokens of each example begin and end among these.
      first_rows: int64 [N], the first row of each example.
    """

    megabatch: Megabatch
    values: np.ndarray
    tokens: np.ndarray
    splits: np.ndarray
    first_rows: np.ndarray


class Assembly(NamedTuple):
    """How the rows of a kind are put together.

    Attributes:
      level: the level whose rows the device computes, if it is not the level of the output:
        `token` or `sequence`.
      finish: makes the output from values of that level: its values [U, D], or where they come with
        units of their own, the rows of its level, which have the values as a feature of its name.
      cut: the units of each example beyond the most that the output may have, int64 [N].
      counted: which values of the output there must be, bool [W]; None for all. Others are NaN.
    """

    level: str = ""
    finish: Callable[[OutputSpec, DeviceValues], np.ndarray | Rows] | None = None
    cut: Callable[[OutputSpec, DeviceValues], np.ndarray] = lambda output, computed: np.zeros(
        len(computed.first_rows), np.int64
    )
    counted: Callable[[Megabatch], np.ndarray | None] = lambda megabatch: None


def assembly_of(output: OutputSpec) -> Assembly:
    """How an output is put together."""
    as_pooled = _KINDS.get((output.kind, output.level, output.pooling))
    return as_pooled or _KINDS.get((output.kind, output.level), _AS_ITS_LEVEL)


def _surprisals(output: OutputSpec, computed: DeviceValues) -> np.ndarray:
    """float32 [W, 1] from the scores of tokens, [T, 1]: the negated sum over a word's pieces.

    A word that truncation cut, or that has no pieces, has no surprisal: NaN.
    """
    megabatch, table = computed.megabatch, computed.megabatch.units["word"]
    words = np.repeat(np.arange(len(table.num_pieces)), table.num_pieces)
    is_piece = megabatch.columns[TARGET_IDS][computed.tokens] >= 0
    sums = np.bincount(words, -computed.values[is_piece, 0], minlength=len(table.num_pieces))
    sums[~table.whole] = np.nan
    return sums.astype(np.float32)[:, None]


def _scored(output: OutputSpec, computed: DeviceValues) -> Rows:
    """The tokens of the skip list have no vector."""
    columns = computed.megabatch.columns
    scored = columns[SCORED][computed.tokens] > 0
    ids = columns["values"][computed.tokens[scored]]
    splits = splits_of(count_by_row(scored, computed.splits))
    return Rows(splits, {"scored_token_ids": ids}, {output.name: computed.values[scored]})


def _terms_of_rows(output: OutputSpec, values: np.ndarray, first_rows: np.ndarray) -> Rows:
    """The terms of each example from the terms of its rows; `first_rows` are int64 [N].

    `values` are what `encoder.terms.heaviest` gives, [R, 2 K + 1]. A term of several windows has
    its largest weight; so the heaviest terms of a text are exact.
    """
    ids, weights = np.split(values[:, :-1], 2, axis=1)
    if len(ids) == len(first_rows):  # a row for each example, whose terms are in order
        kept = ~(weights <= output.min_weight)
        columns = {"term_ids": ids[kept].astype(np.int32)}
        return Rows(splits_of(kept.sum(1)), columns, {output.name: weights[kept][:, None]})
    lengths = np.diff(np.append(first_rows, len(ids)))
    return _join_terms(output, lengths * ids.shape[1], ids, weights)


def _cut_terms(output: OutputSpec, values: np.ndarray, first_rows: np.ndarray) -> np.ndarray:
    """int64 [N]: the terms of each example beyond its K heaviest; of several windows at least."""
    counts = values[:, -1].astype(np.int64) - output.max_units
    cut: np.ndarray = np.maximum.reduceat(np.maximum(counts, 0), first_rows)
    return cut


def _join_terms(
    output: OutputSpec, lengths: np.ndarray, ids: np.ndarray, weights: np.ndarray
) -> Rows:
    """Each term once, the heaviest first and of equal ones the lower id; at most K of an example.

    Args:
      output: the output.
      lengths: the number of terms of each example, int64 [N]; a term may be there several times.
      ids: of these terms.
      weights: of these terms.
    """
    number, examples = len(lengths), np.repeat(np.arange(len(lengths)), lengths)
    ids, weights = ids.reshape(-1).astype(np.int32), weights.reshape(-1)
    kept = ~(weights <= output.min_weight)  # NaN stays, and is counted
    examples, ids, weights = examples[kept], ids[kept], weights[kept]
    order = np.lexsort((-weights, ids, examples))  # of equal terms the heaviest comes first
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(examples[order]) != 0) | (np.diff(ids[order]) != 0)
    order = order[is_first]
    order = order[np.lexsort((ids[order], -weights[order], examples[order]))]
    starts = splits_of(np.bincount(examples[order], minlength=number))
    ranks = np.arange(len(order)) - starts[examples[order]]
    order = order[ranks < output.max_units]
    splits = splits_of(np.bincount(examples[order], minlength=number))
    return Rows(splits, {"term_ids": ids[order]}, {output.name: weights[order, None]})


def _terms_of_tokens(output: OutputSpec, computed: DeviceValues) -> Rows:
    """The terms of texts whose weights are those of their tokens."""
    ids = computed.megabatch.columns["values"][computed.tokens]
    return _join_terms(output, np.diff(computed.splits), ids, computed.values)


def _cut_tokens(output: OutputSpec, computed: DeviceValues) -> np.ndarray:
    """int64 [N]: the terms of each text beyond its K heaviest."""
    most = int(np.diff(computed.splits).max(initial=0))
    if most <= output.max_units:
        return np.zeros(len(computed.splits) - 1, np.int64)
    whole = _terms_of_tokens(replace(output, max_units=most), computed)
    cut: np.ndarray = np.maximum(np.diff(whole.splits) - output.max_units, 0)
    return cut


_AS_ITS_LEVEL = Assembly()
# By kind and level, and where that matters the pooling.
_KINDS: dict[tuple[str, ...], Assembly] = {
    ("multi_vector", "vector"): Assembly("token", _scored),
    ("score", "word"): Assembly(
        "token",
        _surprisals,
        counted=lambda megabatch: megabatch.units["word"].whole,
    ),
    ("sparse", "term"): Assembly(
        "sequence",
        lambda output, computed: _terms_of_rows(output, computed.values, computed.first_rows),
        lambda output, computed: _cut_terms(output, computed.values, computed.first_rows),
    ),
    **{
        ("sparse", "term", pooling): Assembly("token", _terms_of_tokens, _cut_tokens)
        for pooling in TOKEN_WEIGHTS
    },
}
