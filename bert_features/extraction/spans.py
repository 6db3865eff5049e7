"""The vectors of spans from their parts: the tokens of a span that one row owns.

Shape legend: `N` examples, `U` spans of all examples, `O` parts, `D` width.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_features.batches.spans import SpanTable
from bert_features.batches.words import without_unwritable
from bert_features.config.features import OutputSpec
from bert_features.formats.columns import text_array, value_dtype
from bert_features.formats.records import Rows
from bert_features.readers.input_example import InputExample

_MIN_NORM = 1e-12


def span_rows(
    output: OutputSpec,
    table: SpanTable,
    parts: np.ndarray,
    examples: Sequence[InputExample],
    *,
    in_windows: bool,
) -> Rows:
    """The spans of examples with the vectors of an output, from those of the parts, [O, D].

    In windows the device has not finished these, see `output_specs.outputs_on_device`.
    """
    vectors = np.zeros((len(table.begins), output.width), value_dtype(output.dtype))
    order = np.argsort(table.part_units, kind="stable")
    units, firsts = np.unique(table.part_units[order], return_index=True)
    parts = parts[order]
    if in_windows and len(units):
        sizes = table.part_sizes[order].astype(np.float64)[:, None]
        joined = _JOINS[output.pooling](parts.astype(np.float64), firsts, sizes)[:, : output.width]
        if output.normalize:
            norms = np.linalg.norm(joined, axis=1, keepdims=True)
            joined /= np.maximum(norms, _MIN_NORM)
        with np.errstate(over="ignore"):  # what overflows is counted
            parts = joined.astype(vectors.dtype)
    vectors[units] = parts
    names = ("begins", "ends", "type_ids", "num_pieces")
    columns = {f"span_{name}": getattr(table, name) for name in names}
    columns |= texts_of_spans(examples, columns, table.row_splits)
    return Rows(table.row_splits, columns, {output.name: vectors})


def texts_of_spans(
    examples: Sequence[InputExample], columns: Mapping[str, np.ndarray], splits: np.ndarray
) -> dict[str, np.ndarray]:
    """The columns of text: what the spans hold, and their labels, str [U] of dtype object."""
    names = ("span_begins", "span_ends", "span_type_ids")
    places = list(zip(*(columns[name].tolist() for name in names), strict=True))
    texts: list[str] = []
    labels: list[str] = []
    bounds = splits.tolist()
    for i, example in enumerate(examples):
        own = places[bounds[i] : bounds[i + 1]]
        sources = example.text_a[example.prompt :], example.text_b or ""
        texts += [sources[kind][begin:end] for begin, end, kind in own]
        given = example.spans
        labels += [""] * len(own) if given is None else [span.label for span in given]
    return {
        "spans": text_array(without_unwritable(texts)),
        "span_labels": text_array(without_unwritable(labels)),
    }


# The values of the parts of each span, [O, D] in the order of the rows; where the parts of each
# span begin, int64 [spans]; and the tokens of each, [O, 1] -> [spans, D].
_Join = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _lasts(parts: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    return np.append(firsts[1:], len(parts)) - 1


def _both_ends(parts: np.ndarray, firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    half = parts.shape[1] // 2
    return np.hstack([parts[firsts, :half], parts[_lasts(parts, firsts), half:]])


_JOINS: dict[str, _Join] = {
    "mean": lambda parts, firsts, sizes: (
        np.add.reduceat(parts * sizes, firsts) / np.add.reduceat(sizes, firsts)
    ),
    "max": lambda parts, firsts, sizes: np.maximum.reduceat(parts, firsts),
    "first": lambda parts, firsts, sizes: parts[firsts],
    "last": lambda parts, firsts, sizes: parts[_lasts(parts, firsts)],
    "first_last": _both_ends,
}
