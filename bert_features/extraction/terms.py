"""The terms of texts, from the terms of their rows or from their tokens.

Shape legend: `N` examples of a window, `R` their rows, `T` tokens that the rows own, `K` terms of a
row, `U` terms of all examples.
"""

from typing import TYPE_CHECKING

import numpy as np

from bert_features.config.features import OutputSpec
from bert_features.formats.records import Rows, splits_of

if TYPE_CHECKING:
    from bert_features.extraction.kinds import Placed


def terms_of_rows(output: OutputSpec, placed: "Placed") -> Rows:
    """The terms of the rows of each example, from what `encoder.terms.heaviest` gives, [R, 2K+1].

    A term of several windows has its largest weight; so the heaviest terms of a text are exact.
    """
    ids, weights = np.split(placed.values[:, :-1], 2, axis=1)
    bounds = np.append(placed.first_rows, len(ids))
    examples = np.repeat(np.arange(len(placed.first_rows)), np.diff(bounds))
    return _terms(output, placed, np.repeat(examples, ids.shape[1]), ids, weights)


def terms_of_tokens(output: OutputSpec, placed: "Placed") -> Rows:
    """The distinct pieces of each example, from the weights of its tokens, [T, 1]."""
    examples = np.repeat(np.arange(len(placed.first_rows)), np.diff(placed.splits))
    ids = placed.window.columns["values"][placed.tokens]
    return _terms(output, placed, examples, ids, placed.values)


def cut_terms(output: OutputSpec, placed: "Placed") -> np.ndarray:
    """int64 [N]: the terms of each example beyond its K heaviest; of several windows at least."""
    counts = placed.values[:, -1].astype(np.int64) - output.max_units
    cut: np.ndarray = np.maximum.reduceat(np.maximum(counts, 0), placed.first_rows)
    return cut


def _terms(
    output: OutputSpec,
    placed: "Placed",
    examples: np.ndarray,
    ids: np.ndarray,
    weights: np.ndarray,
) -> Rows:
    """Each term once, the heaviest first and of equal ones the lower id; at most K of an example.

    `examples`, `ids` and `weights` have the same number of values, some of them of the same term.
    """
    ids, weights = ids.reshape(-1).astype(np.int32), weights.reshape(-1)
    kept = ~(weights <= output.min_weight)
    examples, ids, weights = examples[kept], ids[kept], weights[kept]
    order = np.lexsort((-weights, ids, examples))  # of equal terms the heaviest comes first
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(examples[order]) != 0) | (np.diff(ids[order]) != 0)
    order = order[is_first]
    order = order[np.lexsort((ids[order], -weights[order], examples[order]))]
    number = len(placed.first_rows)
    starts = splits_of(np.bincount(examples[order], minlength=number))
    ranks = np.arange(len(order)) - starts[examples[order]]
    order = order[ranks < output.max_units]
    splits = splits_of(np.bincount(examples[order], minlength=number))
    return Rows(splits, {"term_ids": ids[order]}, {output.name: weights[order, None]})
