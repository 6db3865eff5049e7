"""Words and spans of finished examples: their vectors, and the columns beside these.

Shape legend: `N` examples, `U` words or spans of all examples, `O` their parts, see
`unit_tables.UnitTable`, `D` width.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_features.batches.unit_tables import UnitTable
from bert_features.batches.words import without_unwritable
from bert_features.config.features import OutputSpec
from bert_features.config.levels import LEVELS, TEXT
from bert_features.encoder.finishing import finish
from bert_features.formats.columns import text_array, value_dtype
from bert_features.readers.input_example import InputExample


def vectors_of_units(
    output: OutputSpec, table: UnitTable, parts: np.ndarray, *, unfinished: bool
) -> np.ndarray:
    """[U, D] from the vectors of the parts, [O, D]; zeros for units without a part.

    `unfinished` parts are put together first, see `output_specs.outputs_on_device`.
    """
    units = table.part_units
    if unfinished and len(units):
        units, firsts = np.unique(units, return_index=True)
        sizes = table.part_sizes.astype(np.float64)[:, None]
        joined = _JOINS[output.pooling](parts.astype(np.float64), firsts, sizes)
        parts = finish_on_host(joined, output)
    if len(units) == len(table.starts):
        return parts
    vectors = np.zeros((len(table.starts), output.width), value_dtype(output.dtype))
    vectors[units] = parts
    return vectors


def finish_on_host(vectors: np.ndarray, output: OutputSpec) -> np.ndarray:
    """[..., D] of the dtype of an output, from vectors that windows gave parts of."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is counted
        return np.asarray(finish(vectors, output, np).astype(value_dtype(output.dtype), copy=False))


def columns_of_units(
    level: str, table: UnitTable, examples: Sequence[InputExample], *, labelled: bool
) -> dict[str, np.ndarray]:
    """The columns of words or spans."""
    values = table.starts, table.ends, table.type_ids, table.num_pieces
    columns = dict(zip(_numbers(level), values, strict=True))
    texts = texts_of_units(level, examples, columns, table.row_splits, labelled=labelled)
    return texts | columns


def texts_of_units(
    level: str,
    examples: Sequence[InputExample],
    columns: Mapping[str, np.ndarray],
    splits: np.ndarray,
    *,
    labelled: bool,
) -> dict[str, np.ndarray]:
    """The columns of text of words or spans, which a cache does not hold: str [U], dtype object.

    Args:
      level: `word` or `span`.
      examples: N.
      columns: the other columns of the units.
      splits: int64 [N + 1], where the units of each example begin.
      labelled: whether words have labels; a word without a vector has none.
    """
    places = list(zip(*(columns[name].tolist() for name in _numbers(level)[:3]), strict=True))
    strings: list[str] = []
    labels: list[str] = []
    bounds = splits.tolist()
    for i, example in enumerate(examples):
        its_places = places[bounds[i] : bounds[i + 1]]
        first = example.prompt if level == "span" else 0
        texts = example.text_a[first:], example.text_b or ""
        words = iter([*(example.words_a or ()), *(example.words_b or ())])
        strings += [
            next(words) if start < 0 else texts[kind][start:end] for start, end, kind in its_places
        ]
        labels += _labels(level, example) or [""] * len(its_places)
    if level == "word" and labelled:
        pieces = columns["word_num_pieces"].tolist()
        labels = [label if count else "" for label, count in zip(labels, pieces, strict=True)]
    row = LEVELS[level].columns_of(labelled=labelled)
    names = [name for name, dtype in row.items() if dtype == TEXT]
    return {
        name: text_array(without_unwritable(values))
        for name, values in zip(names, (strings, labels), strict=False)
    }


def _labels(level: str, example: InputExample) -> Sequence[str]:
    """The labels of an example's words or spans; none if it has none."""
    if level == "span":
        return [span.label for span in example.spans or ()]
    return (example.labels or ()) if example.words_a is not None else ()


def _numbers(level: str) -> list[str]:
    return [name for name, dtype in LEVELS[level].columns.items() if dtype != TEXT]


# The values of the parts of each span, [O, D]; where the parts of each span begin, int64 [spans];
# and the tokens of each part, [O, 1] -> [spans, D].
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
