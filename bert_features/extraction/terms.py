"""The terms of texts, from the terms of their rows or from their tokens.

Shape legend: `N` examples, `R` their rows, `T` tokens that the rows own, `K` the most terms of a
row or example.
"""

import numpy as np

from bert_features.config.features import OutputSpec
from bert_features.formats.records import Rows, splits_of


def terms_of_rows(output: OutputSpec, values: np.ndarray, first_rows: np.ndarray) -> Rows:
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
    return join_terms(output, lengths * ids.shape[1], ids, weights)


def cut_terms(output: OutputSpec, values: np.ndarray, first_rows: np.ndarray) -> np.ndarray:
    """int64 [N]: the terms of each example beyond its K heaviest; of several windows at least."""
    counts = values[:, -1].astype(np.int64) - output.max_units
    cut: np.ndarray = np.maximum.reduceat(np.maximum(counts, 0), first_rows)
    return cut


def join_terms(
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
